// Reads lines of tests/data/kafka from standard input and checks each by the classes of Apache Kafka on the class path.
// Prints one line for each that differs, then the number of lines it checked, by kind.
//   zcat golden_messages.jsonl.gz golden_batches.jsonl.gz | java -cp 'DIRECTORY_OF_JARS/*' CheckGolden.java

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.errors.RefreshRetriableException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.storage.internals.log.LogConfig;

public class CheckGolden {
    static final ObjectMapper JSON = new ObjectMapper();
    static final List<String> PACKAGES = List.of(
        "org.apache.kafka.common.message.",
        "org.apache.kafka.common.metadata.",
        "org.apache.kafka.coordinator.group.generated.",
        "org.apache.kafka.coordinator.transaction.generated.",
        "org.apache.kafka.coordinator.share.generated.",
        "org.apache.kafka.raft.generated.",
        "org.apache.kafka.server.log.remote.metadata.storage.generated.");

    public static void main(String[] args) throws Exception {
        var counts = new TreeMap<String, Integer>();
        var in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode node = JSON.readTree(line);
            String kind = node.has("message") ? "messages" : node.has("code") ? "errors" : node.has("scope") ? "configs" : "batches";
            counts.merge(kind, 1, Integer::sum);
            String wrong;
            try {
                wrong = switch (kind) {
                    case "messages" -> message(node);
                    case "errors" -> error(node);
                    case "configs" -> config(node);
                    default -> batch(node);
                };
            } catch (Exception e) {
                wrong = e.toString();
            }
            if (wrong != null) System.out.println("differs: " + line.substring(0, Math.min(90, line.length())) + ": " + wrong);
        }
        System.out.println("checked: " + counts);
    }

    static Class<?> find(String name) throws ClassNotFoundException {
        for (String base : PACKAGES) {
            for (String suffix : new String[] {"", "Data"}) {
                try {
                    return Class.forName(base + name + suffix);
                } catch (ClassNotFoundException e) {
                    continue;
                }
            }
        }
        throw new ClassNotFoundException(name);
    }

    static String message(JsonNode node) throws Exception {
        Class<?> type = find(node.get("message").asText());
        short version = (short) node.get("version").asInt();
        byte[] bytes = HexFormat.of().parseHex(node.get("hex").asText());
        Message read = (Message) type.getDeclaredConstructor().newInstance();
        ByteBuffer buffer = ByteBuffer.wrap(bytes);
        read.read(new ByteBufferAccessor(buffer), version);
        if (buffer.hasRemaining()) return buffer.remaining() + " bytes are left";
        if (!java.util.Arrays.equals(write(read, version), bytes)) return "it is not written as it was read";
        Class<?> converter = Class.forName(type.getName() + "JsonConverter");
        Object json = converter.getMethod("write", type, short.class).invoke(null, read, version);
        JsonNode expected = node.get("json").deepCopy();
        boolean records = withoutRecords(expected);
        // Through text, since a converter's node of bytes is not equal to the same value read from text.
        if (!JSON.readTree(json.toString()).equals(expected)) return "its JSON is " + json;
        if (records) return null;
        Message made = (Message) converter.getMethod("read", JsonNode.class, short.class).invoke(null, expected, version);
        return java.util.Arrays.equals(write(made, version), bytes) ? null : "its JSON makes other bytes";
    }

    // Kafka's converters leave the bytes of records empty; the golden JSON has them in base64.
    static boolean withoutRecords(JsonNode node) {
        boolean found = false;
        for (String name : new String[] {"records", "unalignedRecords"}) {
            if (node instanceof ObjectNode object && object.path(name).isTextual()) {
                object.put(name, "");
                found = true;
            }
        }
        for (JsonNode child : node) found |= withoutRecords(child);
        return found;
    }

    static byte[] write(Message message, short version) {
        var cache = new ObjectSerializationCache();
        ByteBuffer written = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(written), cache, version);
        return written.array();
    }

    static String batch(JsonNode node) {
        byte[] bytes = HexFormat.of().parseHex(node.get("hex").asText());
        int size = 0;
        for (RecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(bytes)).batches()) {
            batch.ensureValid();
            for (var record : batch) record.ensureValid();
            size += batch.sizeInBytes();
        }
        return size == bytes.length ? null : size + " of " + bytes.length + " bytes are batches";
    }

    static String error(JsonNode node) {
        Errors error = Errors.forCode((short) node.get("code").asInt());
        boolean retriable = error.exception() instanceof RetriableException;
        boolean refresh = error.exception() instanceof RefreshRetriableException;
        boolean same = error.name().equals(node.get("name").asText())
            && retriable == node.get("retriable").asBoolean() && refresh == node.get("refreshMetadata").asBoolean();
        return same ? null : error + " retriable " + retriable + " refreshMetadata " + refresh;
    }

    static final Map<String, Map<String, ConfigDef.ConfigKey>> KEYS = Map.of(
        "broker", kafka.server.KafkaConfig.configDef().configKeys(),
        "topic", LogConfig.configKeys(),
        "group", GroupConfig.CONFIG_DEF.configKeys());

    static String config(JsonNode node) {
        ConfigDef.ConfigKey key = KEYS.get(node.get("scope").asText()).get(node.get("name").asText());
        if (key == null) return "no such key";
        if (!key.type.name().equals(node.get("type").asText())) return "its type is " + key.type;
        if (!key.importance.name().equals(node.get("importance").asText())) return "its importance is " + key.importance;
        JsonNode value = node.get("default");
        // A default that comes from the machine is null in the table; one that is missing is required.
        boolean required = value.asText().equals("<required>");
        if (required != !key.hasDefault()) return "it is required: " + !key.hasDefault();
        boolean plain = value.isNumber() || value.isBoolean();
        return !plain || value.asText().equals(String.valueOf(key.defaultValue)) ? null : "its default is " + key.defaultValue;
    }
}

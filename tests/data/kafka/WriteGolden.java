// Reads lines {"message", "version", "case", "json"} from standard input. Prints each with "hex": the bytes that Apache
// Kafka's own class writes for that JSON, and with the JSON that the class makes of those bytes.
//   java -cp 'DIRECTORY_OF_JARS/*' WriteGolden.java < lines.jsonl > golden_messages_zookeeper.jsonl

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

public class WriteGolden {
    public static void main(String[] args) throws Exception {
        var json = new ObjectMapper();
        var in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            var node = (ObjectNode) json.readTree(line);
            short version = (short) node.get("version").asInt();
            var type = Class.forName("org.apache.kafka.common.message." + node.get("message").asText() + "Data");
            var converter = Class.forName(type.getName() + "JsonConverter");
            var message = (Message) converter.getMethod("read", JsonNode.class, short.class).invoke(null, node.get("json"), version);
            var cache = new ObjectSerializationCache();
            var buffer = new ByteBufferAccessor(ByteBuffer.allocate(message.size(cache, version)));
            message.write(buffer, cache, version);
            node.put("hex", HexFormat.of().formatHex(buffer.buffer().array()));
            buffer.flip();
            var read = (Message) type.getDeclaredConstructor().newInstance();
            read.read(buffer, version);
            node.set("json", (JsonNode) converter.getMethod("write", type, short.class).invoke(null, read, version));
            System.out.println(node);
        }
    }
}

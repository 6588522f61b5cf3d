import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A member of a KIP-848 group that leaves a regular expression to the broker: VerifiableConsumer has none, and the
 * console consumer resolves it itself. Arguments: PATTERN and the path of a properties file. It tells what
 * VerifiableConsumer tells, until SIGTERM.
 */
public class RegexMember {
    public static void main(String[] arguments) throws Exception {
        Properties properties = org.apache.kafka.common.utils.Utils.loadProps(arguments[1]);
        var consumer = new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            consumer.wakeup();
            try {
                main.join(20_000);
            } catch (InterruptedException ignored) {
                // the process ends anyway
            }
        }));
        consumer.subscribe(new SubscriptionPattern(arguments[0]), new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                say("partitions_assigned", places(partitions));
            }

            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                say("partitions_revoked", places(partitions));
            }
        });
        try {
            while (true) {
                poll(consumer);
            }
        } catch (WakeupException terminated) {
            consumer.close();
        }
    }

    private static void poll(KafkaConsumer<byte[], byte[]> consumer) {
        ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(300));
        if (records.isEmpty()) {
            return;
        }
        String spans = records.partitions().stream().map(at -> {
            List<ConsumerRecord<byte[], byte[]>> got = records.records(at);
            return "{\"topic\":\"%s\",\"partition\":%d,\"count\":%d,\"minOffset\":%d,\"maxOffset\":%d}".formatted(
                at.topic(), at.partition(), got.size(), got.get(0).offset(), got.get(got.size() - 1).offset());
        }).collect(Collectors.joining(","));
        say("records_consumed", "\"partitions\":[" + spans + "]");
        consumer.commitSync();
    }

    private static String places(Collection<TopicPartition> partitions) {
        return "\"partitions\":[" + partitions.stream()
            .map(at -> "{\"topic\":\"%s\",\"partition\":%d}".formatted(at.topic(), at.partition()))
            .collect(Collectors.joining(",")) + "]";
    }

    private static void say(String name, String fields) {
        System.out.println("{\"name\":\"%s\",\"timestamp\":%d,%s}".formatted(name, System.currentTimeMillis(), fields));
    }
}

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A transactional producer that does what the lines of stdin say. Arguments: transact|fence BOOTSTRAP TOPIC
 * TRANSACTIONAL_ID [FILE]; the file has further properties. Lines, in tabs: "send PARTITION KEY VALUE",
 * "offset GROUP TOPIC PARTITION OFFSET", "commit", "abort".
 * With "fence" a second producer begins after the last line, and the error of the first one's commit is printed.
 */
public class TransactionalProducer {
    public static void main(String[] given) throws Exception {
        KafkaProducer<String, String> producer = producer(given);
        boolean open = false;
        Map<String, Map<TopicPartition, OffsetAndMetadata>> offsets = new HashMap<>();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t");
            if (!open) {
                producer.beginTransaction();
                open = true;
            }
            switch (words[0]) {
                case "send" -> producer.send(
                        new ProducerRecord<>(given[2], Integer.parseInt(words[1]), words[2], words[3])).get();
                case "offset" -> offsets.computeIfAbsent(words[1], group -> new HashMap<>()).put(
                        new TopicPartition(words[2], Integer.parseInt(words[3])),
                        new OffsetAndMetadata(Long.parseLong(words[4])));
                default -> {
                    for (var one : offsets.entrySet()) {
                        producer.sendOffsetsToTransaction(one.getValue(), new ConsumerGroupMetadata(one.getKey()));
                    }
                    offsets.clear();
                    if (words[0].equals("commit")) {
                        producer.commitTransaction();
                    } else {
                        producer.abortTransaction();
                    }
                    open = false;
                }
            }
        }
        if (given[0].equals("fence")) {
            fence(producer, producer(given));
        }
        producer.close();
    }

    private static KafkaProducer<String, String> producer(String[] given) {
        Properties properties = new Properties();
        if (given.length > 4) {
            try (var file = new java.io.FileReader(given[4])) {
                properties.load(file);
            } catch (java.io.IOException error) {
                throw new IllegalStateException(error);
            }
        }
        properties.put("bootstrap.servers", given[1]);
        properties.put("transactional.id", given[3]);
        var producer = new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        return producer;
    }

    private static void fence(KafkaProducer<String, String> first, KafkaProducer<String, String> second) {
        try {
            first.commitTransaction();
        } catch (KafkaException error) {
            System.out.println(error);
        }
        second.close();
    }
}

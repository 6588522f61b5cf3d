import java.io.BufferedOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.util.Arrays;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Sends numbered records at a steady rate, idempotent and with acks=all, over all partitions in turn, until stdin ends.
 * Arguments: BOOTSTRAP TOPIC PARTITIONS RECORDS_PER_SECOND. It prints a line for each answer, "acked PARTITION NUMBER
 * OFFSET" or "refused PARTITION NUMBER ERROR", and at the end "sent COUNT…", by partition.
 */
public class SteadyProducer {
    private static final PrintStream OUT =
            new PrintStream(new BufferedOutputStream(new FileOutputStream(FileDescriptor.out)), false);

    private static volatile boolean over;

    public static void main(String[] arguments) throws Exception {
        Thread watcher = new Thread(SteadyProducer::awaitEnd);
        watcher.setDaemon(true);
        watcher.start();
        String topic = arguments[1];
        int[] sent = new int[Integer.parseInt(arguments[2])];
        double ratePerS = Double.parseDouble(arguments[3]);
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("acks", "all");
        properties.put("enable.idempotence", "true");
        properties.put("linger.ms", "2");
        // A request is given up after 2 s, and another attempt comes soon: the cluster is measured, not its client.
        properties.put("request.timeout.ms", "2000");
        properties.put("delivery.timeout.ms", "300000");
        properties.put("socket.connection.setup.timeout.ms", "2000");
        properties.put("socket.connection.setup.timeout.max.ms", "2000");
        properties.put("reconnect.backoff.ms", "20");
        properties.put("reconnect.backoff.max.ms", "200");
        properties.put("retry.backoff.ms", "20");
        properties.put("retry.backoff.max.ms", "200");
        try (var producer = new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            long began = System.nanoTime();
            int total = 0;
            while (!over) {
                int due = (int) ((System.nanoTime() - began) / 1e9 * ratePerS) - total;
                for (; due > 0; due--) {
                    send(producer, topic, total % sent.length, sent[total % sent.length]++);
                    total++;
                }
                Thread.sleep(2);
            }
            producer.flush();
        }
        say("sent " + Arrays.stream(sent).mapToObj(String::valueOf).collect(Collectors.joining(" ")));
    }

    private static void awaitEnd() {
        try {
            System.in.transferTo(java.io.OutputStream.nullOutputStream());
        } catch (IOException ignored) {
            // that is an end, too
        }
        over = true;
    }

    private static void send(KafkaProducer<byte[], byte[]> producer, String topic, int partition, int number) {
        byte[] value = "%d %0100d".formatted(number, number).getBytes();
        producer.send(new ProducerRecord<>(topic, partition, null, value), (metadata, error) -> {
            String place = partition + " " + number + " ";
            say(error == null ? "acked " + place + metadata.offset() : "refused " + place + error);
        });
    }

    private static synchronized void say(String line) {
        OUT.println(line);
        OUT.flush();
    }
}

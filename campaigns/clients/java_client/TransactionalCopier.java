import java.io.BufferedOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Copies a topic in transactions, the group's offsets in each of them, until stdin ends. Arguments: BOOTSTRAP INPUT
 * OUTPUT GROUP TRANSACTIONAL_ID BATCH_RECORDS PAUSE_MS ABORT_SHARE SEED TRANSACTION_TIMEOUT_MS SESSION_TIMEOUT_MS. It
 * prints the lines that campaigns/transactions/programs.py reads, and ends with 3 if it is fenced, 4 if it fails.
 */
public class TransactionalCopier {
    private static final PrintStream OUT =
            new PrintStream(new BufferedOutputStream(new FileOutputStream(FileDescriptor.out)), false);
    private static final long CALL_MS = 60_000;

    private static volatile boolean over;

    private final String input;
    private final String output;
    private final double pauseMs;
    private final double abortShare;
    private final Random fate;
    private final KafkaProducer<byte[], byte[]> producer;
    private final KafkaConsumer<byte[], byte[]> consumer;
    private int held;

    private TransactionalCopier(String[] given) {
        input = given[1];
        output = given[2];
        pauseMs = Double.parseDouble(given[6]);
        abortShare = Double.parseDouble(given[7]);
        fate = new Random(given[8].hashCode());
        Properties common = new Properties();
        common.put("bootstrap.servers", given[0]);
        // A request is given up after 2 s, and another attempt comes soon: the cluster is tried, not its client.
        common.put("request.timeout.ms", "2000");
        common.put("socket.connection.setup.timeout.ms", "2000");
        common.put("socket.connection.setup.timeout.max.ms", "2000");
        common.put("reconnect.backoff.ms", "20");
        common.put("reconnect.backoff.max.ms", "200");
        common.put("retry.backoff.ms", "20");
        common.put("retry.backoff.max.ms", "200");
        Properties producing = new Properties();
        producing.putAll(common);
        producing.put("transactional.id", given[4]);
        producing.put("transaction.timeout.ms", given[9]);
        producing.put("linger.ms", "2");
        producing.put("delivery.timeout.ms", "60000");
        producing.put("max.block.ms", String.valueOf(CALL_MS));
        producer = new KafkaProducer<>(producing, new ByteArraySerializer(), new ByteArraySerializer());
        Properties consuming = new Properties();
        consuming.putAll(common);
        consuming.put("group.id", given[3]);
        consuming.put("group.protocol", "classic");
        consuming.put("isolation.level", "read_committed");
        consuming.put("enable.auto.commit", "false");
        consuming.put("auto.offset.reset", "earliest");
        consuming.put("max.poll.records", given[5]);
        consuming.put("session.timeout.ms", given[10]);
        consuming.put("heartbeat.interval.ms", "300");
        consuming.put("metadata.max.age.ms", "1000");
        consuming.put("fetch.max.wait.ms", "100");
        consumer = new KafkaConsumer<>(consuming, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    public static void main(String[] given) {
        Thread watcher = new Thread(TransactionalCopier::awaitEnd);
        watcher.setDaemon(true);
        watcher.start();
        try {
            new TransactionalCopier(given).copy();
        } catch (ProducerFencedException fenced) {
            end("fenced", fenced, 3);
        } catch (Exception error) {
            end("failed", error, 4);
        }
    }

    private static void awaitEnd() {
        try {
            System.in.transferTo(java.io.OutputStream.nullOutputStream());
        } catch (IOException ignored) {
            // that is an end, too
        }
        over = true;
    }

    private void copy() throws Exception {
        producer.initTransactions();
        consumer.subscribe(List.of(input));
        say("ready");
        while (!over) {
            ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(200));
            int holds = consumer.assignment().size();
            if (holds != held) {
                held = holds;
                say("holds " + held);
            }
            if (!records.isEmpty()) {
                transaction(records);
            }
        }
        consumer.close();
        producer.close();
        say("ended");
    }

    private void transaction(ConsumerRecords<byte[], byte[]> records) throws Exception {
        boolean doomed = fate.nextDouble() < abortShare;
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
        StringBuilder places = new StringBuilder();
        try {
            producer.beginTransaction();
            say("began " + records.count());
            for (ConsumerRecord<byte[], byte[]> one : records) {
                var copy = new ProducerRecord<>(output, one.partition(), one.key(), one.value());
                if (doomed) {
                    copy.headers().add("fate", "abort".getBytes());
                }
                sent.add(producer.send(copy));
                ends.put(new TopicPartition(input, one.partition()), new OffsetAndMetadata(one.offset() + 1));
            }
            Thread.sleep((long) (fate.nextDouble() * pauseMs));
            if (doomed) {
                producer.flush();
                for (Future<RecordMetadata> one : sent) {
                    places.append(' ').append(one.get().partition()).append(':').append(one.get().offset());
                }
                producer.abortTransaction();
            } else {
                producer.sendOffsetsToTransaction(ends, consumer.groupMetadata());
                commit();
            }
        } catch (ProducerFencedException fenced) {
            throw fenced;
        } catch (KafkaException | java.util.concurrent.ExecutionException error) {
            if (error.getCause() instanceof ProducerFencedException fenced) {
                throw fenced;
            }
            abort(error);
            return;
        }
        if (doomed) {
            say("aborted" + places);
            rewind();
        } else {
            say("committed " + records.count());
        }
    }

    private void commit() {
        long deadline = System.currentTimeMillis() + CALL_MS;
        while (true) {
            try {
                producer.commitTransaction();
                return;
            } catch (TimeoutException slow) {
                if (System.currentTimeMillis() > deadline) {
                    throw slow;
                }
            }
        }
    }

    /** Aborts after an error; if that fails, too, the program ends, and its successor begins anew. */
    private void abort(Exception error) {
        try {
            producer.abortTransaction();
        } catch (ProducerFencedException fenced) {
            throw fenced;
        } catch (InvalidProducerEpochException fenced) {
            throw new ProducerFencedException(fenced.getMessage());
        } catch (KafkaException second) {
            throw new KafkaException("not aborted (" + second + ") after " + error, second);
        }
        say("retried " + line(error));
        rewind();
    }

    private void rewind() {
        var assigned = consumer.assignment();
        Map<TopicPartition, OffsetAndMetadata> committed = new HashMap<>();
        for (long deadline = System.currentTimeMillis() + CALL_MS; ; ) {
            try {
                committed = consumer.committed(assigned);
                break;
            } catch (TimeoutException slow) {
                if (System.currentTimeMillis() > deadline) {
                    throw slow;
                }
            }
        }
        for (TopicPartition one : assigned) {
            OffsetAndMetadata at = committed.get(one);
            consumer.seek(one, at == null ? 0 : at.offset());
        }
    }

    private static String line(Throwable error) {
        return error.toString().replaceAll("\\s+", " ");
    }

    private static void end(String word, Exception error, int status) {
        say(word + " " + line(error));
        Runtime.getRuntime().halt(status);
    }

    private static synchronized void say(String line) {
        OUT.println(line);
        OUT.flush();
    }
}

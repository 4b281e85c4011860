import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Starts real clients, each on a thread of its own, and tells how each start ended.
 *
 * Arguments: a living broker, with which the classes are loaded first, and how many milliseconds starts are apart.
 * One line of standard input per client: id, what it does (admin, consumer, producer, group, transaction), topic, properties as
 * name=value, all separated by tabs. One line of output per client: id, ok or failed, seconds, the error.
 */
public class ClientStarts {
    public static void main(String[] arguments) throws Exception {
        warmUp(arguments[0]);
        int apart = Integer.parseInt(arguments[1]);
        List<Thread> threads = new ArrayList<>();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] parts = line.split("\t");
            Thread thread = new Thread(null, () -> run(parts), parts[0], 256 << 10);
            thread.setDaemon(true);
            threads.add(thread);
        }
        for (Thread thread : threads) {
            thread.start();
            Thread.sleep(apart); // all constructors at once would measure the processor
        }
        for (Thread thread : threads) {
            thread.join();
        }
        System.out.flush();
        Runtime.getRuntime().halt(0); // closing a client that waits would take its time
    }

    private static void warmUp(String servers) {
        for (String what : new String[] {"admin", "admin", "list"}) {
            try {
                Properties properties = new Properties();
                properties.setProperty("bootstrap.servers", servers);
                start(what, "", properties);
            } catch (Exception failure) {
                System.err.println("warm-up: " + reported(failure));
            }
        }
    }

    private static void run(String[] parts) {
        long begin = System.nanoTime();
        String error = "";
        try {
            start(parts[1], parts[2], properties(parts));
        } catch (Throwable failure) {
            error = reported(failure);
        }
        double seconds = (System.nanoTime() - begin) / 1e9;
        synchronized (System.out) {
            System.out.println(String.join("\t", parts[0], error.isEmpty() ? "ok" : "failed",
                String.format(java.util.Locale.ROOT, "%.3f", seconds), error));
            System.out.flush();
        }
    }

    private static void start(String what, String topic, Properties properties) throws Exception {
        switch (what) {
            case "admin" -> Admin.create(properties).describeCluster().nodes().get();
            case "consumer" -> read(new KafkaConsumer<>(properties, new ByteArrayDeserializer(),
                new ByteArrayDeserializer()), topic);
            case "list" -> {
                try (var consumer = new KafkaConsumer<>(properties, new ByteArrayDeserializer(),
                        new ByteArrayDeserializer())) {
                    consumer.listTopics();
                }
            }
            case "producer", "transaction" -> write(properties, topic);
            case "group" -> new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())
                .committed(java.util.Set.of(new TopicPartition(topic, 0)));
            default -> throw new IllegalArgumentException(what);
        }
    }

    private static void read(KafkaConsumer<byte[], byte[]> consumer, String topic) {
        List<TopicPartition> all = new ArrayList<>();
        for (PartitionInfo info : consumer.partitionsFor(topic)) {
            all.add(new TopicPartition(topic, info.partition()));
        }
        consumer.assign(all);
        consumer.seekToEnd(all);
        for (TopicPartition one : all) {
            consumer.position(one);
        }
    }

    private static void write(Properties properties, String topic) throws Exception {
        properties.putIfAbsent(ProducerConfig.ACKS_CONFIG, "all");
        KafkaProducer<byte[], byte[]> producer =
            new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
        boolean inTransaction = properties.containsKey(ProducerConfig.TRANSACTIONAL_ID_CONFIG);
        if (inTransaction) {
            producer.initTransactions();
            producer.beginTransaction();
        }
        for (PartitionInfo info : producer.partitionsFor(topic)) {
            producer.send(new ProducerRecord<>(topic, info.partition(), null, new byte[] {1})).get();
        }
        if (inTransaction) {
            producer.commitTransaction();
        }
    }

    private static Properties properties(String[] parts) {
        Properties found = new Properties();
        for (int i = 3; i < parts.length; i++) {
            int equals = parts[i].indexOf('=');
            found.setProperty(parts[i].substring(0, equals), parts[i].substring(equals + 1));
        }
        return found;
    }

    private static String reported(Throwable failure) {
        Throwable cause = failure instanceof java.util.concurrent.ExecutionException ? failure.getCause() : failure;
        StringBuilder text = new StringBuilder(cause.getClass().getSimpleName() + ": " + cause.getMessage());
        if (cause.getCause() != null) {
            text.append(" / ").append(cause.getCause().getMessage());
        }
        return text.toString().replaceAll("\\s+", " ");
    }
}

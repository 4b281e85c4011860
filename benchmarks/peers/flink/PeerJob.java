import java.io.FileWriter;
import java.io.PrintWriter;
import java.util.Properties;
import java.util.Set;
import org.apache.flink.api.common.JobStatus;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.Source;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.kafka.dynamic.metadata.SingleClusterTopicMetadataService;
import org.apache.flink.connector.kafka.dynamic.source.DynamicKafkaSource;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;

/**
 * One Flink job on a local mini-cluster: reads a topic and writes "partition offset mark milliseconds" for each record.
 *
 * Arguments: kafka|dynamic SERVERS TOPIC ROWS_FOLDER CHECKPOINTS_FOLDER REST_PORT RESTORE_PATH_OR_EMPTY. Says on
 * standard output when it submits the job and whenever the job's status changes. The restart strategy is Flink's own.
 */
public final class PeerJob {
    private static final String DISCOVERY_MILLISECONDS = "1000";

    public static void main(String[] given) throws Exception {
        StreamExecutionEnvironment job = StreamExecutionEnvironment.getExecutionEnvironment(settings(given));
        job.setParallelism(2);
        job.enableCheckpointing(1000);
        Source<String, ?, ?> source = given[0].equals("dynamic") ? dynamic(given[1], given[2]) : kafka(given[1], given[2]);
        say("start");
        job.fromSource(source, WatermarkStrategy.noWatermarks(), "peer", Types.STRING).uid("source")
                .map(new Append(given[3])).uid("rows").sinkTo(new DiscardingSink<>()).uid("end");
        follow(job.executeAsync("peer"));
    }

    private static Configuration settings(String[] given) {
        Configuration settings = new Configuration();
        settings.setString("execution.target", "local");
        settings.setString("execution.attached", "true");
        settings.setString("rest.port", given[5]);
        settings.setString("rest.bind-port", given[5]);
        settings.setString("rest.address", "127.0.0.1");
        settings.setString("rest.bind-address", "127.0.0.1");
        settings.setString("web.exception-history-size", "1000");
        settings.setString("execution.checkpointing.dir", "file://" + given[4]);
        settings.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        if (!given[6].isEmpty()) {
            settings.setString("execution.state-recovery.path", given[6]);
        }
        return settings;
    }

    private static Source<String, ?, ?> kafka(String servers, String topic) {
        return KafkaSource.<String>builder().setBootstrapServers(servers).setTopics(topic).setGroupId("flink")
                .setStartingOffsets(OffsetsInitializer.earliest()).setDeserializer(new Place())
                .setProperty("partition.discovery.interval.ms", DISCOVERY_MILLISECONDS).build();
    }

    private static Source<String, ?, ?> dynamic(String servers, String topic) {
        Properties cluster = new Properties();
        cluster.setProperty("bootstrap.servers", servers);
        return DynamicKafkaSource.<String>builder().setStreamIds(Set.of(topic)).setGroupId("flink")
                .setKafkaMetadataService(new SingleClusterTopicMetadataService("only", cluster))
                .setStartingOffsets(OffsetsInitializer.earliest()).setDeserializer(new Place())
                .setProperty("stream-metadata-discovery-interval-ms", DISCOVERY_MILLISECONDS)
                .setProperty("partition.discovery.interval.ms", DISCOVERY_MILLISECONDS).build();
    }

    private static void follow(JobClient client) throws Exception {
        say("job " + client.getJobID());
        JobStatus last = null;
        while (last == null || !last.isGloballyTerminalState()) {
            JobStatus now = client.getJobStatus().get();
            if (now != last) {
                say("status " + now);
            }
            last = now;
            Thread.sleep(10);
        }
        Thread.sleep(Long.MAX_VALUE); // the REST server must still tell why
    }

    private static void say(String what) {
        System.out.println(System.currentTimeMillis() + " " + what);
    }

    /** Turns a record into its place in the log and the first byte of its value. */
    public static final class Place implements KafkaRecordDeserializationSchema<String> {
        @Override
        public void deserialize(ConsumerRecord<byte[], byte[]> record, Collector<String> out) {
            out.collect(record.partition() + " " + record.offset() + " " + (char) record.value()[0]);
        }

        @Override
        public TypeInformation<String> getProducedType() {
            return Types.STRING;
        }
    }

    /** Appends a line per record, at once, to a file of its own subtask and attempt. */
    public static final class Append extends RichMapFunction<String, String> {
        private final String folder;
        private transient PrintWriter rows;

        Append(String folder) {
            this.folder = folder;
        }

        @Override
        public void open(OpenContext context) throws Exception {
            String name = "rows-" + getRuntimeContext().getTaskInfo().getIndexOfThisSubtask() + "-" + System.nanoTime();
            rows = new PrintWriter(new FileWriter(folder + "/" + name, true));
        }

        @Override
        public String map(String place) {
            rows.println(place + " " + System.currentTimeMillis());
            rows.flush();
            return place;
        }
    }
}

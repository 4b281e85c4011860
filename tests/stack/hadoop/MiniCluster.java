import java.io.File;
import java.io.FileOutputStream;
import java.io.OutputStream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;

/** HDFS and YARN in this process, until its standard input ends: FILE-OF-THE-CONFIGURATION NODE-MANAGERS NAME=VALUE... */
public class MiniCluster {
    public static void main(String[] arguments) throws Exception {
        YarnConfiguration configuration = new YarnConfiguration();
        for (int i = 2; i < arguments.length; i++) {
            String[] pair = arguments[i].split("=", 2);
            configuration.set(pair[0], pair[1]);
        }
        MiniDFSCluster hdfs = new MiniDFSCluster.Builder(configuration).numDataNodes(1).build();
        hdfs.waitActive();
        MiniYARNCluster yarn = new MiniYARNCluster("yarn", Integer.parseInt(arguments[1]), 1, 1);
        yarn.init(configuration);
        yarn.start();
        if (!yarn.waitForNodeManagersToConnect(120_000)) {
            throw new IllegalStateException("node managers did not connect");
        }
        Configuration written = new Configuration(yarn.getConfig());
        written.unset("net.topology.node.switch.mapping.impl"); // a class that clients do not have
        File draft = new File(arguments[0] + ".part");
        try (OutputStream out = new FileOutputStream(draft)) {
            written.writeXml(out);
        }
        if (!draft.renameTo(new File(arguments[0]))) {
            throw new IllegalStateException("cannot write " + arguments[0]);
        }
        while (System.in.read() >= 0) { }
        yarn.stop();
        hdfs.shutdown();
        System.exit(0);
    }
}

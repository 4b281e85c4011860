#!/bin/bash
exec java -XX:TieredStopAtLevel=1 -Xmx128m -cp '/opt/kafka/libs/*' org.apache.kafka.tools.TopicCommand "$@"

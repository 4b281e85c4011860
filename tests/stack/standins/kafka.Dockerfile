# Stands in for apache/kafka:4.1.0: the same jars and user, settings from KAFKA_*, topics by kafka-topics.sh.
FROM standin/base:latest
RUN useradd --system --uid 1000 --shell /bin/bash appuser && install -d -o 1000 /var/lib/kafka/data /opt/kafka/config
COPY jars /opt/kafka/libs
COPY kafka-run /etc/kafka/docker/run
COPY kafka-topics.sh /opt/kafka/bin/kafka-topics.sh
USER appuser
VOLUME /var/lib/kafka/data
CMD ["/etc/kafka/docker/run"]

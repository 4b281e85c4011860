# Stands in for eclipse-temurin:17-jre-jammy: a Java 17 runtime in /opt/java/openjdk.
FROM standin/base:latest
RUN mkdir -p /opt/java && cp -rL "$(dirname "$(dirname "$(readlink -f /usr/bin/java)")")" /opt/java/openjdk

# Stands in for prom/prometheus and prom/alertmanager: Debian's binaries at the official paths, busybox' wget.
FROM standin/base:latest
RUN ln -s "$(command -v busybox)" /usr/bin/wget && install -d -o 65534 /prometheus /alertmanager
COPY program /bin/program
COPY share /usr/share/prometheus
USER 65534:65534
VOLUME /prometheus /alertmanager
ENTRYPOINT ["/bin/program"]

#!/bin/bash
# What Spark on Kubernetes asks of an image: its first argument is `driver` (from older submitters `driver-py`) or
# `executor`, the rest stands in the environment. Anything else is run as it is.
# After Apache Spark's resource-managers/kubernetes/docker/.../entrypoint.sh.
set -e
export SPARK_HOME="${SPARK_HOME:-$(python -c 'import pyspark; print(pyspark.__path__[0])')}"
export PYSPARK_DRIVER_PYTHON="${PYSPARK_DRIVER_PYTHON:-$PYSPARK_PYTHON}"

classpath="${SPARK_CONF_DIR:-$SPARK_HOME/conf}:$SPARK_CLASSPATH:$SPARK_HOME/jars/*"
if [ -n "$SPARK_EXTRA_CLASSPATH" ]; then classpath="$classpath:$SPARK_EXTRA_CLASSPATH"; fi
if [ -n "$HADOOP_CONF_DIR" ]; then classpath="$HADOOP_CONF_DIR:$classpath"; fi

case "$1" in
  driver | driver-py)
    shift
    exec "$SPARK_HOME/bin/spark-submit" --deploy-mode client \
      --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" \
      --conf "spark.executorEnv.SPARK_DRIVER_POD_IP=$SPARK_DRIVER_BIND_ADDRESS" \
      "$@"
    ;;
  executor)
    options=()
    while IFS= read -r name; do options+=("${!name}"); done < <(compgen -e SPARK_JAVA_OPT_ | sort -t _ -k 4 -n)
    exec "$JAVA_HOME/bin/java" "${options[@]}" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
      -cp "$classpath:$SPARK_DIST_CLASSPATH:$PWD" \
      org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
      --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
      --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
      --resourceProfileId "${SPARK_RESOURCE_PROFILE_ID:-0}" --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
  *) exec "$@" ;;
esac

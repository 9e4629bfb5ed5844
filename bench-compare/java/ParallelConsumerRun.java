import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import java.time.Duration;
import java.util.List;
import org.apache.kafka.clients.consumer.KafkaConsumer;

/** Confluent's parallel consumer, ordered by key: see StreamRun. */
class ParallelConsumerRun {
    public static void main(String[] args) throws Exception {
        StreamRun.serve(args, ParallelConsumerRun::start);
    }

    static AutoCloseable start(StreamRun run) {
        var consumer = new KafkaConsumer<byte[], byte[]>(run.settings());
        var options = ParallelConsumerOptions.<byte[], byte[]>builder()
            .ordering(ParallelConsumerOptions.ProcessingOrder.KEY)
            .maxConcurrency(run.atATime)
            // The check reads a field that the client no longer has.
            .ignoreReflectiveAccessExceptionsForAutoCommitDisabledCheck(true)
            .consumer(consumer)
            .build();
        var processor = ParallelStreamProcessor.createEosStreamProcessor(options);
        processor.subscribe(List.of(run.topic));
        processor.poll(context -> run.handle(context.value()));
        return () -> {
            processor.closeDontDrainFirst(Duration.ofSeconds(30));
            consumer.close();
        };
    }
}

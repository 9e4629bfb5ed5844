import io.github.eschizoid.kpipe.consumer.KPipeConsumer;
import io.github.eschizoid.kpipe.consumer.ProcessingMode;
import io.github.eschizoid.kpipe.registry.MessageFormat;
import io.github.eschizoid.kpipe.registry.MessageProcessorRegistry;

/** KPipe, ordered by key, with a virtual thread for each key: see StreamRun. */
class KPipeRun {
    public static void main(String[] args) throws Exception {
        StreamRun.serve(args, KPipeRun::start);
    }

    static AutoCloseable start(StreamRun run) {
        var pipeline = new MessageProcessorRegistry().pipeline(MessageFormat.bytes())
            .add(payload -> {
                run.handle(payload);
                return payload;
            })
            .build();
        var consumer = KPipeConsumer.builder()
            .withProperties(run.settings())
            .withTopic(run.topic)
            .withPipeline(pipeline)
            .withProcessingMode(ProcessingMode.KEY_ORDERED)
            // As many records in flight as Keylane's.
            .withBackpressure(20_000, 19_000)
            .build();
        consumer.start();
        return consumer::close;
    }
}

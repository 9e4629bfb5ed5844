import io.confluent.parallelconsumer.PCRetriableException;
import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelConsumerOptions.ProcessingOrder;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Semaphore;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * The application with the parallel consumer: java Before BROKERS TOPIC GROUP FOLDER LIMIT. It runs until SIGTERM. To show a move in
 * the middle it handles at most LIMIT records; others fail, and would be tried again.
 */
final class Before {
  public static void main(String[] arguments) throws Exception {
    Logbook logbook = new Logbook(Path.of(arguments[3]));
    Map<String, Object> settings = Map.of(
        "bootstrap.servers", arguments[0],
        "group.id", arguments[2],
        "enable.auto.commit", false,
        "auto.offset.reset", "earliest",
        "key.deserializer", StringDeserializer.class,
        "value.deserializer", StringDeserializer.class);
    ParallelConsumerOptions<String, String> options = ParallelConsumerOptions.<String, String>builder()
        .consumer(new KafkaConsumer<>(settings))
        .ordering(ProcessingOrder.KEY)
        .maxConcurrency(32)
        .build();
    ParallelStreamProcessor<String, String> processor = ParallelStreamProcessor.createEosStreamProcessor(options);
    Runtime.getRuntime().addShutdownHook(new Thread(processor::closeDontDrainFirst));
    processor.subscribe(List.of(arguments[1]));
    Semaphore left = new Semaphore(Integer.parseInt(arguments[4]));
    processor.poll(context -> {
      if (!left.tryAcquire()) {
        throw new PCRetriableException("the limit is reached");
      }
      try {
        logbook.handle(context.key(), context.value());
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
    });
  }
}

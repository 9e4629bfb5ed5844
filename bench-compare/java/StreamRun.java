import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import java.util.logging.Level;
import java.util.logging.Logger;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Runs of a consumer over one topic, for the benchmark `kafka` of keylane-stream, which starts this program as
 *
 * CLASS BROKERS TOPIC RECORDS KEYS
 *
 * and writes a line for each run, `GROUP PARK_MICROS AT_A_TIME`. The answer is a line of two numbers of nanoseconds: from the first
 * handler to the end of the last, and from the start of the consumer to there. The process lives for all runs, so that its
 * code is compiled. A record's payload is its number n, and its key n modulo KEYS; each handler checks the order.
 */
class StreamRun {
    final String brokers, topic, group;
    final int atATime;
    private final long parkNanos;
    private final int records;
    /** For each key, the number of its last record that has ended, or -1. */
    private final AtomicLong[] last;
    private final AtomicLong first = new AtomicLong();
    private final AtomicInteger ended = new AtomicInteger();
    private final CountDownLatch over = new CountDownLatch(1);
    private volatile String failure;
    private volatile long end;

    interface Start {
        AutoCloseable of(StreamRun run) throws Exception;
    }

    private StreamRun(String[] args, String[] words) {
        brokers = args[0];
        topic = args[1];
        records = Integer.parseInt(args[2]);
        last = new AtomicLong[Integer.parseInt(args[3])];
        for (int key = 0; key < last.length; key++) last[key] = new AtomicLong(-1);
        group = words[0];
        parkNanos = TimeUnit.MICROSECONDS.toNanos(Long.parseLong(words[1]));
        atATime = Integer.parseInt(words[2]);
    }

    static void serve(String[] args, Start start) throws Exception {
        // The libraries log to it.
        var answers = System.out;
        System.setOut(System.err);
        // KPipe logs each pause.
        Logger.getLogger("").setLevel(Level.SEVERE);
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null; ) {
            var run = new StreamRun(args, line.split(" "));
            long begin = System.nanoTime();
            try (var running = start.of(run)) {
                if (!run.over.await(120, TimeUnit.SECONDS)) run.failure = "not all records came in two minutes";
            }
            if (run.failure != null) {
                System.err.println(run.failure);
                System.exit(1);
            }
            answers.println((run.end - run.first.get()) + " " + (run.end - begin));
            answers.flush();
        }
    }

    Properties settings() {
        var settings = new Properties();
        settings.put("bootstrap.servers", brokers);
        settings.put("group.id", group);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        return settings;
    }

    /** The handler of each record. */
    void handle(byte[] payload) {
        first.compareAndSet(0, System.nanoTime());
        if (parkNanos > 0) LockSupport.parkNanos(parkNanos);
        long number = Long.parseLong(new String(payload));
        if (last[(int) (number % last.length)].getAndSet(number) >= number) failure = "record " + number + " is out of order";
        if (ended.incrementAndGet() == records) {
            end = System.nanoTime();
            over.countDown();
        }
    }
}

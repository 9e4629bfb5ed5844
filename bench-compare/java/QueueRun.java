import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.ArrayBlockingQueue;

/**
 * One run of W4 on an ArrayBlockingQueue, printed as the harness's JSON line:
 * java QueueRun.java java-abq|java-abq-fair PRODUCERS CONSUMERS CAPACITY MILLIS SLOW
 *
 * Half a second of the same runs first, so that the compiler has done its work.
 */
class QueueRun {
    static final long END = -1;
    static final int PLACE_BITS = 48;
    static final long SLOW_NANOS = 20_000;
    static final int WARM_UP_MILLIS = 500;

    static volatile boolean stop;
    static volatile boolean counts;

    /** What one end saw go by. */
    static class Sum extends Thread {
        long items, total, errors;
        long[] waits = new long[1 << 18];
        int counted;
    }

    static class Producer extends Sum {
        final ArrayBlockingQueue<Long> queue;
        final long number;
        final boolean timed;

        Producer(ArrayBlockingQueue<Long> queue, long number, boolean timed) {
            this.queue = queue;
            this.number = number;
            this.timed = timed;
        }

        @Override public void run() {
            try {
                while (!stop) {
                    boolean isCounted = timed && counts;
                    long begin = timed ? System.nanoTime() : 0;
                    long item = number << PLACE_BITS | items;
                    queue.put(item);
                    items++;
                    total += item;
                    if (isCounted && !stop && counted < waits.length) {
                        waits[counted++] = System.nanoTime() - begin;
                    }
                }
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
        }
    }

    static class Consumer extends Sum {
        final ArrayBlockingQueue<Long> queue;
        final long[] next;
        final boolean alone, slow;

        Consumer(ArrayBlockingQueue<Long> queue, int producers, boolean alone, boolean slow) {
            this.queue = queue;
            this.next = new long[producers];
            this.alone = alone;
            this.slow = slow;
        }

        @Override public void run() {
            try {
                for (long item = queue.take(); item != END; item = queue.take()) {
                    int producer = (int) (item >>> PLACE_BITS);
                    long place = item & ((1L << PLACE_BITS) - 1);
                    if (alone ? place != next[producer] : place < next[producer]) errors++;
                    next[producer] = place + 1;
                    items++;
                    total += item;
                    long begin = slow && !stop ? System.nanoTime() : 0;
                    while (slow && !stop && System.nanoTime() - begin < SLOW_NANOS) Thread.onSpinWait();
                }
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
        }
    }

    public static void main(String[] words) throws Exception {
        boolean fair = words[0].equals("java-abq-fair"), slow = Boolean.parseBoolean(words[5]);
        int producers = Integer.parseInt(words[1]), consumers = Integer.parseInt(words[2]);
        int capacity = Integer.parseInt(words[3]), millis = Integer.parseInt(words[4]);
        run(words[0], fair, producers, consumers, capacity, WARM_UP_MILLIS, slow);
        System.out.println(run(words[0], fair, producers, consumers, capacity, millis, slow));
    }

    static String run(String peer, boolean fair, int producers, int consumers, int capacity, int millis,
            boolean slow) throws Exception {
        stop = counts = false;
        var queue = new ArrayBlockingQueue<Long>(capacity, fair);
        List<Sum> ins = new ArrayList<>(), outs = new ArrayList<>();
        for (int i = 0; i < producers; i++) ins.add(new Producer(queue, i, slow));
        for (int i = 0; i < consumers; i++) outs.add(new Consumer(queue, producers, consumers == 1, slow));
        long begin = System.nanoTime();
        ins.forEach(Thread::start);
        outs.forEach(Thread::start);
        if (slow) Thread.sleep(300);
        counts = true;
        Thread.sleep(millis);
        stop = true;
        for (Sum end : ins) end.join();
        for (int i = 0; i < consumers; i++) queue.put(END);
        for (Sum end : outs) end.join();
        double secs = (System.nanoTime() - begin) / 1e9;
        long sent = ins.stream().mapToLong(e -> e.items).sum(), came = outs.stream().mapToLong(e -> e.items).sum();
        boolean same = sent == came
            && ins.stream().mapToLong(e -> e.total).sum() == outs.stream().mapToLong(e -> e.total).sum();
        String figures = slow ? fairness(ins) : String.format(Locale.ROOT,
            "\"secs\":%f,\"items_m_per_sec\":%f,\"ns_per_item\":%f", secs, came / secs / 1e6, secs * 1e9 / came);
        return String.format(Locale.ROOT,
            "{\"workload\":\"w4\",\"peer\":\"%s\",\"allocator\":\"java\",\"keys\":0,\"producers\":%d,\"workers\":%d,"
                + "\"tasks\":%d,\"order_errors\":%d,\"all_done\":%b,%s}",
            peer, producers, consumers, came, outs.stream().mapToLong(e -> e.errors).sum(), same, figures);
    }

    static String fairness(List<Sum> ins) {
        double sum = 0, squares = 0;
        for (Sum end : ins) {
            sum += end.counted;
            squares += (double) end.counted * end.counted;
        }
        long[] waits = ins.stream().flatMapToLong(e -> Arrays.stream(e.waits, 0, e.counted)).sorted().toArray();
        double median = waits[(waits.length - 1) / 2] / 1e3, p99 = waits[(int) ((waits.length - 1) * 0.99)] / 1e3;
        double max = waits[waits.length - 1] / 1e3;
        return String.format(Locale.ROOT,
            "\"jain\":%f,\"median_us\":%f,\"p99_us\":%f,\"max_us\":%f,\"max_over_median\":%f,\"p99_over_median\":%f",
            sum * sum / (ins.size() * squares), median, p99, max, max / median, p99 / median);
    }
}

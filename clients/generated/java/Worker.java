import dev.keylane.client.ApiClient;
import dev.keylane.client.ApiException;
import dev.keylane.client.api.DefaultApi;
import dev.keylane.client.model.ClaimRequest;
import dev.keylane.client.model.CompleteBatch;
import dev.keylane.client.model.HeartbeatBatch;
import dev.keylane.client.model.Lease;
import dev.keylane.client.model.LeaseEnd;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/**
 * Worker for the kind `render`, with a client that was generated from the server's OpenAPI document.
 *
 * <p>The work is to turn the text of a payload into upper case. Each slot leases a subtask, runs it, and
 * reports its end. One thread keeps the leases of all slots. SIGTERM lets running subtasks end.
 */
public final class Worker {
  private static final int SLOTS = 4;

  private final DefaultApi api;

  /** Threads that run the tasks of the leases that are held, by the ids of the leases. */
  private final Map<String, Thread> held = new ConcurrentHashMap<>();

  private final CountDownLatch running = new CountDownLatch(SLOTS);
  private volatile boolean isStopping;

  private Worker(String server, String token) {
    ApiClient client = new ApiClient();
    client.updateBaseUri(server);
    if (token != null) {
      client.setRequestInterceptor(request -> request.header("Authorization", "Bearer " + token));
    }
    api = new DefaultApi(client);
  }

  public static void main(String[] arguments) throws InterruptedException {
    Worker worker = new Worker(System.getenv("KEYLANE_SERVER"), System.getenv("KEYLANE_TOKEN"));
    Runtime.getRuntime().addShutdownHook(new Thread(worker::stop));
    for (int slot = 0; slot < SLOTS; slot++) {
      new Thread(worker::work).start();
    }
    while (!worker.running.await(2, TimeUnit.SECONDS)) {
      worker.heartbeat();
    }
  }

  /** Waits until the running subtasks have ended: the virtual machine ends after this. */
  private void stop() {
    isStopping = true;
    try {
      running.await();
    } catch (InterruptedException ended) {
      Thread.currentThread().interrupt();
    }
  }

  /** Does subtasks one after another. */
  private void work() {
    while (!isStopping) {
      try {
        for (Lease lease : claim()) {
          execute(lease);
        }
      } catch (ApiException refused) {
        System.err.println("no work: " + refused.getMessage() + "; trying again");
        pause();
      }
    }
    running.countDown();
  }

  private List<Lease> claim() throws ApiException {
    // A stop waits for this request, so that the leases of its answer are not lost.
    ClaimRequest request = new ClaimRequest().kinds(List.of("render")).waitMs(1000L).worker("java-worker");
    return api.postV1Leases(request).getLeases();
  }

  private void execute(Lease lease) {
    held.put(lease.getId(), Thread.currentThread());
    LeaseEnd end = new LeaseEnd().id(lease.getId());
    try {
      end.result(render(lease));
    } catch (IllegalArgumentException failed) {
      end.error(failed.getMessage());
    }
    // A slot is interrupted when its lease is lost: the result does not count, and another worker may have the subtask.
    if (!Thread.interrupted()) {
      report(end);
    }
    held.remove(lease.getId());
  }

  private static Object render(Lease lease) {
    if (lease.getPayload() instanceof Map<?, ?> payload && payload.get("text") instanceof String text) {
      return Map.of("text", text.toUpperCase(Locale.ROOT), "fence", lease.getFence());
    }
    throw new IllegalArgumentException("the payload has no text");
  }

  /** Repeats a report until the server has it. The lease stays meanwhile, also over a restart of the server. */
  private void report(LeaseEnd end) {
    while (true) {
      try {
        var results = api.postV1LeasesComplete(new CompleteBatch().leases(List.of(end)));
        if (results.getItems().get(0).getStatus() < 500) {
          return;
        }
      } catch (ApiException refused) {
        System.err.println("not reported yet: " + refused.getMessage());
      }
      pause();
    }
  }

  /** Sends heartbeats, and interrupts slots whose leases have ended. */
  private void heartbeat() {
    List<String> ids = new ArrayList<>(held.keySet());
    if (ids.isEmpty()) {
      return;
    }
    try {
      var items = api.postV1LeasesHeartbeat(new HeartbeatBatch().leases(ids)).getItems();
      for (int place = 0; place < items.size(); place++) {
        int status = items.get(place).getStatus();
        Thread slot = held.get(ids.get(place));
        if (slot != null && (status == 404 || status == 409)) {
          slot.interrupt();
        }
      }
    } catch (ApiException refused) {
      System.err.println("no heartbeat: " + refused.getMessage());
    }
  }

  private static void pause() {
    try {
      Thread.sleep(1000);
    } catch (InterruptedException lost) {
      Thread.currentThread().interrupt();
    }
  }
}

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.concurrent.Executors;

/**
 * The application as a service for keylane consume --http: java After PORT FOLDER. It gets each record as a request, and the next
 * one of the key after its answer.
 */
final class After {
  public static void main(String[] arguments) throws Exception {
    Logbook logbook = new Logbook(Path.of(arguments[1]));
    HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0])), 0);
    server.setExecutor(Executors.newCachedThreadPool());
    server.createContext("/flights", exchange -> answer(exchange, logbook));
    server.start();
    System.out.println("listening on http://127.0.0.1:" + server.getAddress().getPort() + "/flights");
  }

  private static void answer(HttpExchange exchange, Logbook logbook) throws IOException {
    try (exchange) {
      String aircraft = exchange.getRequestHeaders().getFirst("keylane-key");
      String row = new String(exchange.getRequestBody().readAllBytes(), StandardCharsets.UTF_8);
      logbook.handle(aircraft, row);
      exchange.sendResponseHeaders(204, -1);
    } catch (IOException error) {
      // A failed attempt. Keylane repeats it, and the key waits.
      exchange.sendResponseHeaders(503, -1);
    }
  }
}

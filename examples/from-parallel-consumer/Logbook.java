import static java.nio.file.StandardOpenOption.APPEND;
import static java.nio.file.StandardOpenOption.CREATE;
import static java.nio.file.StandardOpenOption.DSYNC;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

/**
 * The application's work, which does not change by the move: it writes the flights of each aircraft into a file, and notes where
 * one departs from an airport at which it has not arrived.
 *
 * <p>The file is read and then written without a lock, so flights of one aircraft must come one after another and in order.
 */
final class Logbook {
  private final Path folder;

  Logbook(Path folder) throws IOException {
    this.folder = Files.createDirectories(folder);
  }

  /** Handles a flight: a row of the flights' file. */
  void handle(String aircraft, String row) throws IOException {
    String[] columns = row.split(",");
    String from = columns[12];
    String to = columns[13];
    Path file = folder.resolve(aircraft);
    List<String> earlier = Files.exists(file) ? Files.readAllLines(file) : List.of();
    String lastSeen = earlier.isEmpty() ? from : earlier.get(earlier.size() - 1).split(" ")[3];
    String flight = columns[9] + columns[10] + " " + from + " to " + to;
    String note = lastSeen.equals(from) ? "" : " last seen at " + lastSeen;
    String line = flight + " on " + columns[1] + "-" + columns[2] + note + "\n";
    Files.writeString(file, line, CREATE, APPEND, DSYNC);
  }
}

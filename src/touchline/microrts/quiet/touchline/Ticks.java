package touchline;

import ai.jni.Response;
import java.nio.IntBuffer;
import tests.JNIGridnetSharedMemClient;

/**
 * Plays ticks of several games in one call from Python, where a call for each tick of each game took
 * longer than the tick. What comes back lies in the public fields, in the order of the games played.
 *
 * Ticks.class next to this file is made of it by: javac --release 17 -cp microrts.jar
 */
public class Ticks {
    private final JNIGridnetSharedMemClient[] clients;
    private final IntBuffer allowed;
    private final int cells;
    private final int choices;
    private final int orderTypes;
    private final int winLoss;

    /** What each reward function paid in all, one game after another. */
    public double[] paid;
    /** How many ticks were begun. */
    public int[] played;
    public boolean[] over;
    /** What was thrown in a game, which ends it; null otherwise. */
    public String[] faults;

    /**
     * allowed holds [clients, cells, choices] numbers, of which a cell's first orderTypes are types of
     * orders; the reward function numbered winLoss knows when a game is over.
     */
    public Ticks(JNIGridnetSharedMemClient[] clients, IntBuffer allowed, int cells, int choices,
            int orderTypes, int winLoss) {
        this.clients = clients;
        this.allowed = allowed;
        this.cells = cells;
        this.choices = choices;
        this.orderTypes = orderTypes;
        this.winLoss = winLoss;
    }

    /** Each chosen game plays until it is over, its player has a choice, or it has played so many. */
    public void play(int[] chosen, int[] players, int[] most) {
        int functions = clients[0].rfs.length;
        paid = new double[chosen.length * functions];
        played = new int[chosen.length];
        over = new boolean[chosen.length];
        faults = new String[chosen.length];
        for (int game = 0; game < chosen.length; game++) {
            JNIGridnetSharedMemClient client = clients[chosen[game]];
            try {
                do {
                    played[game]++;
                    Response response = client.gameStep(players[game]);
                    for (int function = 0; function < functions; function++) {
                        paid[game * functions + function] += response.reward[function];
                    }
                    over[game] = response.done[winLoss];
                    client.getMasks(players[game]);
                } while (!over[game] && played[game] < most[game] && !hasChoice(chosen[game]));
            } catch (Throwable thrown) {
                faults[game] = thrown.toString();
            }
        }
    }

    private boolean hasChoice(int client) {
        int start = client * cells * choices;
        for (int cell = 0; cell < cells; cell++) {
            // Type 0 is to do nothing.
            for (int type = 1; type < orderTypes; type++) {
                if (allowed.get(start + cell * choices + type) != 0) {
                    return true;
                }
            }
        }
        return false;
    }
}

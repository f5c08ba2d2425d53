import java.util.ArrayDeque;
import java.util.Random;
import java.util.TreeMap;

/** Transactions COUNT: a fixed number of orders in a warehouse, as Pseudo JBB has instead of a time. */
public final class Transactions {
    private record Order(int customer, int[] items, String note) {}

    public static void main(String[] words) {
        long count = words.length > 0 ? Long.parseLong(words[0]) : 1;
        Random random = new Random(1);
        TreeMap<Integer, Integer> stock = new TreeMap<>();
        ArrayDeque<Order> open = new ArrayDeque<>();
        long delivered = 0;
        for (long number = 0; number < count; number++) {
            int[] items = random.ints(8, 0, 20_000).toArray();
            for (int item : items) {
                stock.merge(item, 1, Integer::sum);
            }
            open.add(new Order(random.nextInt(3_000), items, "order " + number));
            if (open.size() > 10_000) {
                Order done = open.remove();
                for (int item : done.items()) {
                    stock.merge(item, -1, Integer::sum);
                }
                delivered += done.note().length() + done.customer() % 2;
            }
        }
        System.out.println(count + " transactions, " + delivered + ", " + stock.size());
    }
}

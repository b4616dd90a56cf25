//! The same work on many things, on several threads; the answers come in the things' order.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Works on every item. Who works on what differs from run to run, the answers do not.
pub fn map<T: Sync, R: Send>(threads: usize, items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let answers: Mutex<Vec<Option<R>>> = Mutex::new(items.iter().map(|_| None).collect());
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, items.len().max(1)) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(at) else { break };
                    let answer = work(item);
                    answers.lock().expect("no worker panics with it")[at] = Some(answer);
                }
            });
        }
    });
    let answers = answers.into_inner().expect("all workers have ended");
    answers.into_iter().map(|answer| answer.expect("every item was worked on")).collect()
}

/// As many threads as the machine has cores, or as many as were asked for.
pub fn threads(asked: Option<u16>) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    asked.map_or_else(cores, usize::from)
}

#[cfg(test)]
mod tests {
    use super::map;

    #[test]
    fn answers_come_in_order_whatever_the_number_of_threads() {
        let items: Vec<u64> = (0..100).collect();
        for threads in [1, 2, 7, 200] {
            assert_eq!(map(threads, &items, |item| item * item)[99], 9801);
            assert!(map(threads, &items, |item| *item).is_sorted());
        }
        assert!(map(4, &[] as &[u8], |item| *item).is_empty());
    }
}

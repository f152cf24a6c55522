//! Permits that are shared fairly: a number work at a time, fewer of one owner, such as a namespace or the
//! source of a connection, and owners take turns.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// Permits of one kind. Clones share them.
pub struct Permits<K: Ord + Clone>(Arc<Mutex<State<K>>>);

impl<K: Ord + Clone> Clone for Permits<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

struct State<K: Ord + Clone> {
    /// Permits in all, and of an owner.
    most: usize,
    share: usize,
    /// The permits that owners have.
    working: BTreeMap<K, usize>,
    waiting: BTreeMap<K, VecDeque<oneshot::Sender<Permit<K>>>>,
    /// The owners that wait, in the order of their turns.
    turns: VecDeque<K>,
}

/// A permit, which is given back when it is dropped.
pub struct Permit<K: Ord + Clone> {
    permits: Permits<K>,
    owner: K,
}

impl<K: Ord + Clone> Drop for Permit<K> {
    fn drop(&mut self) {
        self.permits.lock().give_back(&self.owner);
        self.permits.grant();
    }
}

impl<K: Ord + Clone> Permits<K> {
    /// `most` permits, of which an owner gets `share`.
    pub fn new(most: usize, share: usize) -> Self {
        let (working, waiting, turns) = (BTreeMap::new(), BTreeMap::new(), VecDeque::new());
        Self(Arc::new(Mutex::new(State { most, share, working, waiting, turns })))
    }

    /// Waits for a permit.
    pub async fn acquire(&self, owner: &K) -> Option<Permit<K>> {
        let (sender, receiver) = oneshot::channel();
        {
            let mut state = self.lock();
            let queue = state.waiting.entry(owner.clone()).or_default();
            queue.push_back(sender);
            if queue.len() == 1 {
                state.turns.push_back(owner.clone());
            }
        }
        self.grant();
        // The sender is dropped only with all permits.
        receiver.await.ok()
    }

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn grant(&self) {
        loop {
            let next = self.lock().take_next();
            let Some((owner, sender)) = next else { return };
            // One who has stopped to wait gives its permit to the next, when the answer is dropped.
            let unused = sender.send(Permit { permits: self.clone(), owner });
            drop(unused);
        }
    }
}

impl<K: Ord + Clone> State<K> {
    fn give_back(&mut self, owner: &K) {
        if let Some(count) = self.working.get_mut(owner) {
            *count -= 1;
            if *count == 0 {
                self.working.remove(owner);
            }
        }
    }

    fn has_share(&self, owner: &K) -> bool {
        self.working.get(owner).is_none_or(|count| *count < self.share)
    }

    /// The next that may work: of the first owner in turn that has not its share.
    fn take_next(&mut self) -> Option<(K, oneshot::Sender<Permit<K>>)> {
        if self.working.values().sum::<usize>() >= self.most {
            return None;
        }
        let index = self.turns.iter().position(|owner| self.has_share(owner))?;
        let owner = self.turns.remove(index)?;
        let queue = self.waiting.get_mut(&owner)?;
        // Those who have stopped to wait are passed over at once, because there may be many.
        queue.retain(|sender| !sender.is_closed());
        let sender = queue.pop_front();
        if queue.is_empty() {
            self.waiting.remove(&owner);
        } else {
            self.turns.push_back(owner.clone());
        }
        match sender {
            Some(sender) => {
                *self.working.entry(owner.clone()).or_default() += 1;
                Some((owner, sender))
            }
            None => self.take_next(),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn owners_take_turns_and_two_work() {
        let permits = Permits::new(2, 1);
        let (a, b, c) = ("a", "b", "c");
        let first = permits.acquire(&a).await;
        let mut waiting: Vec<_> = (0..1000).map(|_| Box::pin(permits.acquire(&a))).collect();
        assert!(waiting.iter_mut().all(|wait| wait.now_or_never().is_none()), "one of an owner");
        let second = permits.acquire(&b).await;
        let mut third = Box::pin(permits.acquire(&c));
        assert!((&mut third).now_or_never().is_none(), "two at a time");
        drop(second);
        let third = (&mut third).now_or_never().expect("the other owner is next");
        waiting.truncate(1);
        drop(first);
        assert!(waiting.remove(0).now_or_never().is_some(), "those who stopped to wait are passed over");
        drop(third);
        assert!(permits.acquire(&b).now_or_never().is_some());
        assert!(permits.lock().working.is_empty(), "permits come back");
    }
}

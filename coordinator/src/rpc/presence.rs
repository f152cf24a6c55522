//! Which hosts have a stream here, and what happens when one comes twice.
//!
//! The rule: the same boot id is the same system, so the newer stream wins.
//! Another boot id is a reboot whose old stream nobody has closed yet, or a
//! second host with a copied key. The old connection tells which: a dead one
//! does not answer HTTP/2 pings, and is closed after [`KEEPALIVE`] and
//! [`KEEPALIVE_ANSWER`]. So the newcomer waits for that long and gets no plan
//! before; if the old stream is still there then, two hosts are alive, and both
//! are turned away.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::{KEEPALIVE, KEEPALIVE_ANSWER};

/// How long a newcomer waits for the old stream to be found dead.
pub const PROBE: Duration = KEEPALIVE.saturating_add(KEEPALIVE_ANSWER).saturating_add(Duration::from_secs(5));

/// Why a stream must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// A newer stream of the same system.
    Replaced,
    /// Two hosts claim the identity.
    Quarantined,
    /// This replica ends.
    Leaving,
}

/// What becomes of a newcomer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meeting {
    /// Nobody else is there.
    Alone,
    /// The same system: its older stream ends.
    SameSystem,
    /// Another boot: the old stream must prove dead first.
    OtherBoot,
}

/// The rule.
#[must_use]
pub fn meet(seated: Option<&str>, newcomer: &str) -> Meeting {
    match seated {
        None => Meeting::Alone,
        Some(boot_id) if boot_id == newcomer => Meeting::SameSystem,
        Some(_) => Meeting::OtherBoot,
    }
}

type Ender = Arc<watch::Sender<Option<Ending>>>;

struct Seated {
    boot_id: String,
    number: u64,
    ender: Ender,
}

#[derive(Default)]
struct Room {
    seated: HashMap<String, Seated>,
    /// Whose stream ended, and which it was; cleared when the host is back.
    left: HashMap<String, u64>,
    next: u64,
}

/// Streams of this replica, by UID of the inventory.
pub struct Presence {
    room: Mutex<Room>,
    probe: Duration,
}

impl Default for Presence {
    fn default() -> Self {
        Self::with_probe(PROBE)
    }
}

/// The place of one stream; given up when it is dropped.
pub struct Seat {
    presence: Arc<Presence>,
    uid: String,
    number: u64,
    ending: watch::Receiver<Option<Ending>>,
}

/// A stream in the way.
pub struct Contest {
    /// Boot id of the system that has the seat.
    pub boot_id: String,
    ender: Ender,
    probe: Duration,
}

impl Presence {
    /// Nobody is there; a contest lasts for `probe`, which must be longer than
    /// a dead connection can stay open.
    #[must_use]
    pub fn with_probe(probe: Duration) -> Self {
        Self { room: Mutex::default(), probe }
    }

    fn room(&self) -> MutexGuard<'_, Room> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of streams.
    #[must_use]
    pub fn count(&self) -> usize {
        self.room().seated.len()
    }

    /// Whether that host has a stream here.
    #[must_use]
    pub fn has(&self, uid: &str) -> bool {
        self.room().seated.contains_key(uid)
    }

    /// Takes the seat of a host.
    ///
    /// # Errors
    /// The [`Contest`] when another boot holds it.
    pub fn enter(self: &Arc<Self>, uid: &str, boot_id: &str) -> Result<Seat, Contest> {
        let mut room = self.room();
        let seated = room.seated.get(uid);
        match (meet(seated.map(|seated| &*seated.boot_id), boot_id), seated) {
            (Meeting::OtherBoot, Some(seated)) => {
                let (boot_id, ender) = (seated.boot_id.clone(), seated.ender.clone());
                return Err(Contest { boot_id, ender, probe: self.probe });
            }
            (Meeting::SameSystem, Some(seated)) => {
                seated.ender.send_replace(Some(Ending::Replaced));
            }
            (Meeting::Alone | Meeting::SameSystem | Meeting::OtherBoot, _) => {}
        }
        room.next += 1;
        let number = room.next;
        let (ender, ending) = watch::channel(None);
        let seated = Seated { boot_id: boot_id.to_owned(), number, ender: Arc::new(ender) };
        room.seated.insert(uid.to_owned(), seated);
        room.left.remove(uid);
        Ok(Seat { presence: self.clone(), uid: uid.to_owned(), number, ending })
    }

    /// Ends every stream: the process ends, and hosts need not wait for a
    /// broken connection to look for another replica.
    pub fn close(&self) {
        for seated in self.room().seated.values() {
            seated.ender.send_replace(Some(Ending::Leaving));
        }
    }

    /// Whether the host is still away since the stream of that number ended;
    /// asked once, at the end of the grace.
    #[must_use]
    pub fn stayed_away(&self, uid: &str, number: u64) -> bool {
        let mut room = self.room();
        let away = room.left.get(uid) == Some(&number);
        if away {
            room.left.remove(uid);
        }
        away
    }
}

impl Seat {
    /// Number of the stream.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Waits until the stream must end.
    pub async fn ending(&mut self) -> Ending {
        match self.ending.wait_for(Option::is_some).await {
            Ok(ending) => ending.unwrap_or(Ending::Replaced),
            // The sender lives as long as the seat: it was taken over.
            Err(_) => Ending::Replaced,
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut room = self.presence.room();
        // Whoever took over has the seat now.
        if room.seated.get(&self.uid).is_some_and(|seated| seated.number == self.number) {
            room.seated.remove(&self.uid);
            room.left.insert(self.uid.clone(), self.number);
        }
    }
}

impl Contest {
    /// Whether the stream in the way ends within the time that a dead
    /// connection can last.
    pub async fn is_over(&self) -> bool {
        tokio::time::timeout(self.probe, self.ender.closed()).await.is_ok()
    }

    /// Turns the stream in the way out.
    pub fn quarantine(&self) {
        self.ender.send_replace(Some(Ending::Quarantined));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    #[test]
    fn the_boot_id_decides_who_must_wait() {
        for (seated, newcomer, want) in [
            (None, "a", Meeting::Alone),
            (Some("a"), "a", Meeting::SameSystem),
            (Some("a"), "b", Meeting::OtherBoot),
        ] {
            assert_eq!(meet(seated, newcomer), want);
        }
    }

    fn enter(presence: &Arc<Presence>, boot_id: &str) -> Seat {
        presence.enter("uid", boot_id).ok().unwrap()
    }

    #[tokio::test]
    async fn the_newer_stream_of_one_system_wins() {
        let presence = Arc::<Presence>::default();
        let mut old = enter(&presence, "a");
        let new = enter(&presence, "a");
        assert_eq!(old.ending().await, Ending::Replaced);
        drop(old);
        assert!(presence.has("uid"), "the newer one keeps the seat");
        let number = new.number();
        drop(new);
        assert!(!presence.has("uid") && presence.stayed_away("uid", number));
    }

    #[tokio::test(start_paused = true)]
    async fn a_reboot_gets_the_seat_as_soon_as_the_old_stream_is_dead() {
        let presence = Arc::<Presence>::default();
        let old = enter(&presence, "a");
        let contest = presence.enter("uid", "b").err().unwrap();
        let start = Instant::now();
        tokio::spawn(async move {
            tokio::time::sleep(KEEPALIVE + KEEPALIVE_ANSWER).await;
            drop(old);
        });
        assert!(contest.is_over().await);
        assert_eq!(start.elapsed(), KEEPALIVE + KEEPALIVE_ANSWER);
        assert!(presence.enter("uid", "b").is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn two_living_systems_are_both_turned_out() {
        let presence = Arc::<Presence>::default();
        let mut old = enter(&presence, "a");
        let contest = presence.enter("uid", "b").err().unwrap();
        assert_eq!(contest.boot_id, "a");
        assert!(!contest.is_over().await, "it answers pings");
        contest.quarantine();
        assert_eq!(old.ending().await, Ending::Quarantined);
    }

    #[tokio::test]
    async fn a_host_that_came_back_did_not_stay_away() {
        let presence = Arc::<Presence>::default();
        let first = enter(&presence, "a");
        let number = first.number();
        drop(first);
        let second = enter(&presence, "a");
        assert!(!presence.stayed_away("uid", number), "it is here");
        let later = second.number();
        drop(second);
        assert!(!presence.stayed_away("uid", number), "that was another absence");
        assert!(presence.stayed_away("uid", later));
    }
}

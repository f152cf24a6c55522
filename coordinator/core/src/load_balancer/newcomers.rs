//! Hosts that become members beside ones that cannot be told.

use super::{Internal, Placed};

/// A host that a member does not know: neither hears the other, and each would hold the address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewcomerWait {
    pub host: String,
    /// The member that is told when it is attached.
    pub away: String,
}

/// Takes out those that a member does not know which is not attached. A new member has no API
/// server for minutes: it loses nothing by the wait.
pub(super) fn hold_newcomers(placed: &mut Vec<Placed<'_>>, internal: Internal) -> Option<NewcomerWait> {
    let address = internal.address.to_string();
    // One whose status was lost may carry a duty, and states it when it is attached.
    let is_member = |place: &Placed<'_>| match place.candidate.known {
        Some(known) => known.duty.address == address,
        None => place.candidate.carried_generation > 0 || !place.candidate.is_attached,
    };
    let (members, newcomers): (Vec<_>, Vec<_>) = std::mem::take(placed).into_iter().partition(is_member);
    let find_away = |newcomer: &Placed<'_>| {
        let away = members.iter().find(|member| !member.candidate.is_attached && !knows(member, newcomer))?;
        Some(NewcomerWait { host: newcomer.candidate.host.to_owned(), away: away.candidate.host.to_owned() })
    };
    let wait = newcomers.iter().find_map(&find_away);
    let known: Vec<_> = newcomers.into_iter().filter(|newcomer| find_away(newcomer).is_none()).collect();
    placed.extend(members);
    placed.extend(known);
    placed.sort_by_key(|place| place.candidate.age());
    wait
}

/// Whether the member has confirmed a duty that has the newcomer.
fn knows(member: &Placed<'_>, newcomer: &Placed<'_>) -> bool {
    member.candidate.known.is_some_and(|known| {
        let is_confirmed = known
            .state
            .as_ref()
            .is_some_and(|state| state.generation >= known.duty.generation && state.message.is_empty());
        is_confirmed && known.duty.members.contains(&newcomer.address.to_string())
    })
}

//! Hosts that become members beside ones that cannot be told.

use super::{Internal, Placed};

/// A host that a member does not know: neither hears the other, and each would hold the address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewMemberWait {
    pub host: String,
    /// The member that is told when it is attached.
    pub away: String,
}

/// Takes out those that a member does not know which is not attached. A new member has no API
/// server for minutes: it loses nothing by the wait.
pub(super) fn hold_new_members(placed: &mut Vec<Placed<'_>>, internal: Internal) -> Option<NewMemberWait> {
    let address = internal.address.to_string();
    // One whose status was lost may carry a duty, and states it when it is attached.
    let is_member = |place: &Placed<'_>| match place.candidate.known {
        Some(known) => known.duty.address == address,
        None => place.candidate.carried_generation > 0 || !place.candidate.is_attached,
    };
    let (members, new_members): (Vec<_>, Vec<_>) = std::mem::take(placed).into_iter().partition(is_member);
    let find_away = |new_member: &Placed<'_>| {
        let away =
            members.iter().find(|member| !member.candidate.is_attached && !knows(member, new_member))?;
        Some(NewMemberWait {
            host: new_member.candidate.host.to_owned(),
            away: away.candidate.host.to_owned(),
        })
    };
    let (mut wait, mut known) = (None, vec![]);
    for new_member in new_members {
        match find_away(&new_member) {
            Some(found) => wait = wait.or(Some(found)),
            None => known.push(new_member),
        }
    }
    placed.extend(members);
    placed.extend(known);
    placed.sort_by_key(|place| place.candidate.age());
    wait
}

/// Whether the member has confirmed a duty that has the new one.
fn knows(member: &Placed<'_>, new_member: &Placed<'_>) -> bool {
    member.candidate.known.is_some_and(|known| {
        let is_confirmed = known
            .state
            .as_ref()
            .is_some_and(|state| state.generation >= known.duty.generation && state.message.is_empty());
        is_confirmed && known.duty.members.contains(&new_member.address.to_string())
    })
}

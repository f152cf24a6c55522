//! New members wait for members that are not attached and do not know them.

use super::{Internal, Placed};

/// A host that a member does not know. The two do not hear each other, so that each of them would
/// hold the address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewMemberWait {
    pub host: String,
    /// The member that gets the new duty when it is attached.
    pub away: String,
}

/// Removes the new members that some member neither knows nor can be told. The wait costs a new
/// member nothing, because its API server needs minutes to start.
pub(super) fn hold_new_members(placed: &mut Vec<Placed<'_>>, internal: Internal) -> Option<NewMemberWait> {
    let address = internal.address.to_string();
    let (members, new_members): (Vec<_>, Vec<_>) =
        std::mem::take(placed).into_iter().partition(|place| match place.candidate.known {
            Some(known) => known.duty.address == address,
            // A host without status may carry a duty, which it states when it is attached.
            None => place.candidate.carried_generation > 0 || !place.candidate.is_attached,
        });
    let mut wait = None;
    for new_member in new_members {
        let mut away = members.iter().filter(|member| !member.candidate.is_attached);
        match away.find(|member| !knows(member, &new_member)) {
            Some(away) if wait.is_none() => {
                let (host, away) = (new_member.candidate.host.to_owned(), away.candidate.host.to_owned());
                wait = Some(NewMemberWait { host, away });
            }
            Some(_) => {}
            None => placed.push(new_member),
        }
    }
    placed.extend(members);
    placed.sort_by_key(|place| place.candidate.age());
    wait
}

/// The member has confirmed a duty that contains the new one.
fn knows(member: &Placed<'_>, new_member: &Placed<'_>) -> bool {
    member.candidate.known.is_some_and(|known| {
        let is_confirmed = known
            .state
            .as_ref()
            .is_some_and(|state| state.generation >= known.duty.generation && state.message.is_empty());
        is_confirmed && known.duty.members.contains(&new_member.address.to_string())
    })
}

//! Parameters of a bond by their names in the kernel, which keyfiles and `network_data.json` use.

use coordinator_api::network::ObservedBond;

use super::{NetworkError, bad_value};

pub(super) const KEYS: [&str; 5] = ["mode", "miimon", "lacp_rate", "xmit_hash_policy", "primary"];

/// Sets one parameter. Any other one is refused, because a bond without it may not come up on
/// its switch.
pub(super) fn set_parameter(
    bond: &mut ObservedBond,
    place: &str,
    key: &str,
    text: &str,
) -> Result<(), NetworkError> {
    let value = Some(text.to_owned()).filter(|text| !text.is_empty());
    match key {
        "mode" => text.clone_into(&mut bond.mode),
        "miimon" => {
            let number = text.parse().map_err(|_| bad_value(place, text, "number of milliseconds"))?;
            bond.miimon = Some(number);
        }
        "lacp_rate" => bond.lacp_rate = value,
        "xmit_hash_policy" => bond.transmit_hash_policy = value,
        "primary" => bond.primary = value,
        _ => {
            let wanted = "supported parameter: mode, miimon, lacp_rate, xmit_hash_policy, primary";
            return Err(bad_value(place, text, wanted));
        }
    }
    Ok(())
}

/// The parameters that are set, in the order of [`KEYS`].
pub(super) fn list_parameters(bond: &ObservedBond) -> impl Iterator<Item = (&'static str, String)> {
    let mode = (!bond.mode.is_empty()).then(|| bond.mode.clone());
    let miimon = bond.miimon.map(|interval| interval.to_string());
    let [rate, policy, primary] =
        [&bond.lacp_rate, &bond.transmit_hash_policy, &bond.primary].map(Option::clone);
    KEYS.into_iter().zip([mode, miimon, rate, policy, primary]).filter_map(|(key, value)| Some((key, value?)))
}

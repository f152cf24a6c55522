//! The verb `status`: identity, system and progress of the plan.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use proto::v1alpha1::BootMode;

use crate::client::config;
use crate::ground::paths::Root;
use crate::host::observed;
use crate::identity::{Certificate, Identity, Role};
use crate::state::install_record::InstallRecord;
use crate::state::journal::{self, Journal, State};
use crate::state::network_trial::{self, Trial};
use crate::state::receipt;

/// Renders a few lines of plain text. Unknown values are shown as unknown. The certificate is
/// checked at `now`.
pub fn render_status(root: &Root, now: SystemTime) -> String {
    let mut text = String::new();
    match observed::system_state(root) {
        Ok(system) => {
            push_line(&mut text, "host", &system.hostname);
            let image = if system.image.is_empty() { "unknown" } else { &system.image };
            let mode = system.boot_mode().as_str_name().trim_start_matches("BOOT_MODE_");
            push_line(&mut text, "image", &format!("{image} ({})", mode.to_lowercase()));
            push_line(&mut text, "boot", &system.boot_id);
        }
        Err(error) => push_line(&mut text, "host", &format!("unknown: {error}")),
    }
    push_membership(&mut text, root, now);
    match journal::read(&root.state().journal()) {
        Ok(None) => push_line(&mut text, "plan", "none yet"),
        Ok(Some(journal)) => push_plan(&mut text, &journal),
        Err(error) => push_line(&mut text, "plan", &format!("safe mode, none is run: {error}")),
    }
    if let Some(trial) = network_trial::read_trial(&root.state()) {
        push_line(&mut text, "network", &describe_trial(&trial));
    }
    if root.state().cleanup_marker().exists() {
        push_line(&mut text, "cleanup", "asked for, done by the boot that the plan asks for");
    }
    if let Some(receipt) = receipt::read_receipt(root) {
        push_line(&mut text, "wiped", &format!("for plan {} in boot {}", receipt.plan_id, receipt.boot_id));
    }
    text
}

fn describe_trial(trial: &Trial) -> String {
    match trial.reverted() {
        None => format!("of plan {}, on trial until it reaches the coordinator", trial.plan_id()),
        Some(why) => format!("the former one; that of plan {} did not work: {why}", trial.plan_id()),
    }
}

fn push_line(text: &mut String, what: &str, value: &str) {
    let _ = writeln!(text, "{what:<12}{value}");
}

/// The membership of this host: coordinator, inventory, identity and certificate.
fn push_membership(text: &mut String, root: &Root, now: SystemTime) {
    let live = root.boot_mode() == BootMode::Live;
    let config = if live { root.live_config() } else { root.state().config() };
    match config::read(&config) {
        Ok(config) => push_line(text, "coordinator", &config.address()),
        Err(error) => push_line(text, "coordinator", &format!("unknown: {error}")),
    }
    let identity = match Identity::load(&root.state().identity()) {
        Ok(identity) => identity,
        Err(error) => return push_line(text, "identity", &format!("unknown: {error}")),
    };
    let kept: Vec<_> = identity.iter().flat_map(Identity::kept_certificates).collect();
    // The certificate of the next call.
    let certificate = kept.iter().find(|kept| kept.is_valid(now)).or_else(|| kept.first());
    let named = certificate.and_then(|certificate| certificate.inventory.clone());
    push_line(
        text,
        "inventory",
        &named.or_else(|| read_recorded(root)).unwrap_or_else(|| "none yet".to_owned()),
    );
    push_line(
        text,
        "identity",
        &identity.map_or_else(|| "none yet".to_owned(), |one| describe_identity(&one)),
    );
    push_line(
        text,
        "certificate",
        &certificate.map_or_else(|| "none yet".to_owned(), |one| describe_validity(one, now)),
    );
}

fn describe_identity(identity: &Identity) -> String {
    let held = if identity.endorsement_key().is_some() { "in the TPM" } else { "a software key" };
    format!("{} ({held})", identity.hash())
}

/// The inventory for which the host was installed.
fn read_recorded(root: &Root) -> Option<String> {
    let record = InstallRecord::read(&root.state()).ok()??;
    Some(record.inventory).filter(|inventory| !inventory.is_empty())
}

fn describe_validity(certificate: &Certificate, now: SystemTime) -> String {
    let role = match certificate.role {
        Role::Live => "live system's",
        Role::Installed => "installed system's",
    };
    if let Ok(left) = certificate.not_after.duration_since(now)
        && !left.is_zero()
    {
        return format!("the {role}, valid for another {}", format_duration(left));
    }
    let past = now.duration_since(certificate.not_after).unwrap_or(Duration::ZERO);
    format!("the {role}, expired {} ago: the agent registers again by itself", format_duration(past))
}

fn format_duration(time: Duration) -> String {
    let minutes = time.as_secs() / 60;
    format!("{} h {} min", minutes / 60, minutes % 60)
}

fn push_plan(text: &mut String, journal: &Journal) {
    let (id, generation) = (journal.plan_id(), journal.generation());
    push_line(text, "plan", &format!("{id}, generation {generation}"));
    let steps = journal.steps();
    let done = steps.iter().filter(|step| matches!(step.state, State::Done { .. })).count();
    push_count(text, done, steps.len(), "done");
    for entry in steps {
        let state = match &entry.state {
            State::Pending | State::Done { .. } => continue,
            State::Started { attempts, .. } => format!("started ({attempts}. attempt)"),
            State::Failed => "failed".to_owned(),
        };
        let _ = writeln!(text, "  {:<24} {state}", entry.name);
    }
    let pending = steps.iter().filter(|step| matches!(step.state, State::Pending)).count();
    push_count(text, pending, steps.len(), "pending");
    if let Some(last) = journal.unreported() {
        let _ = writeln!(text, "  the outcome of step {} is not reported yet", last.step);
    }
}

/// Writes a single line for any number of steps, because a screen has 25 lines.
fn push_count(text: &mut String, count: usize, of: usize, state: &str) {
    if count > 0 {
        let _ = writeln!(text, "  {:<24} {state}", format!("{count} of {of} steps"));
    }
}

#[cfg(test)]
mod tests {
    use proto::plan::{Checksum, Generation, Kind, Plan, PlanId, Step};

    use std::fs;

    use super::*;
    use crate::ground::durable;
    use crate::identity::fake::{issue_certificate, january_day};

    /// What stands behind a word in the first column.
    fn value<'a>(text: &'a str, what: &str) -> &'a str {
        let line = text.lines().find(|line| line.split_whitespace().next() == Some(what));
        line.unwrap_or_else(|| panic!("{what}: {text}"))[what.len()..].trim()
    }

    #[test]
    fn the_status_shows_identity_and_coordinator() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let text = render_status(&root, january_day(2));
        for what in ["inventory", "identity", "certificate"] {
            assert_eq!(value(&text, what), "none yet", "{what}");
        }
        assert!(value(&text, "coordinator").contains("; next: "), "{text}");
        let state = root.state();
        let identity = Identity::load_or_make(&state.identity()).unwrap();
        let config = "elemental:\n  registration:\n    url: https://c.example:8443/elemental/registration/secret\n    ca-cert: '-----BEGIN CERTIFICATE-----'\n";
        durable::write(&state.config(), config.as_bytes()).unwrap();
        durable::write(&state.install_record(), br#"{"inventory":"fleet/as-installed"}"#).unwrap();
        let text = render_status(&root, january_day(2));
        assert_eq!(value(&text, "coordinator"), "c.example:8443");
        assert_eq!(value(&text, "identity"), format!("{} (a software key)", identity.hash()));
        assert_eq!(value(&text, "inventory"), "fleet/as-installed", "no certificate yet");
        let chain = issue_certificate(&identity, "live");
        identity.keep_certificate(&Certificate::parse(&chain, &identity.public_key()).unwrap());
        for (day, want) in [
            (2, "the live system's, valid for another 48 h 0 min"),
            (5, "the live system's, expired 24 h 0 min ago: the agent registers again by itself"),
        ] {
            let text = render_status(&root, january_day(day));
            assert_eq!(value(&text, "certificate"), want);
            assert_eq!(value(&text, "inventory"), "fleet/host-1", "the certificate knows better");
            assert!(!text.contains("secret") && !text.contains("PRIVATE"), "{text}");
        }
        fs::write(state.identity().join("key.pem"), "torn").unwrap();
        assert!(value(&render_status(&root, january_day(2)), "identity").starts_with("unknown: "));
    }

    #[test]
    fn the_status_shows_the_plans_progress() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let text = render_status(&root, SystemTime::now());
        assert!(text.contains("host        unknown") && text.contains("none yet"), "{text}");
        fs::create_dir_all(root.state().path()).unwrap();
        let plan = Plan {
            id: PlanId::parse("clean-1").unwrap(),
            generation: Generation(3),
            checksum: Checksum::of(b"clean-1"),
            kind: Kind::Clean,
            steps: vec![Step::StopKubelet, Step::StopContainerd],
        };
        let journal = Journal::begin_plan(&plan).with_started(0, "b");
        journal::write_journal(&root.state(), &journal).unwrap();
        let text = render_status(&root, SystemTime::now());
        assert!(text.contains("clean-1, generation 3"), "{text}");
        assert!(text.contains("stop-kubelet             started (1. attempt)"), "{text}");
        fs::write(root.state().journal(), "torn").unwrap();
        assert!(render_status(&root, SystemTime::now()).contains("safe mode"));
    }
}

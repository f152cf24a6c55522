//! A host that attaches, executes what it is sent by reporting it done, and attaches again.

use agent::ground::backoff::Backoff;
use proto::v1alpha1 as wire;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use wire::host_message::Message;
use wire::step::Action;

use crate::protocol::{Attached, Host, installed, network};

/// What happened to a host, and when.
#[derive(Clone, Debug)]
pub(crate) struct HostEvent {
    pub(crate) kind: EventKind,
    pub(crate) at: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventKind {
    Attached,
    PlanReceived,
    PlanApplied,
    /// The stream could not be opened, or ended although no reboot was due.
    Disconnected,
}

/// The host that runs on a task; it stops when dropped.
pub(crate) struct RunningHost(JoinHandle<()>);

impl Drop for RunningHost {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Keeps `host` attached and executes its plans.
pub(crate) fn start(host: Host, number: usize, events: UnboundedSender<HostEvent>) -> RunningHost {
    let image = installed().image;
    let mut machine =
        SimulatedHost { host, number, events, boot: 0, image, plan: None, node: None, resume_at: 0 };
    RunningHost(tokio::spawn(async move {
        let mut backoff = Backoff::default();
        loop {
            let start = Instant::now();
            match machine.attach_once().await {
                Ok(Ended::Reboot) => backoff.succeeded(),
                Err(error) => {
                    machine.emit(EventKind::Disconnected);
                    if std::env::var_os("BENCH_VERBOSE").is_some() {
                        eprintln!("  {}: {error:#}", machine.host.name);
                    }
                    backoff.record_broken(start.elapsed());
                    backoff.wait().await;
                }
            }
        }
    }))
}

/// Why a stream was ended on purpose.
enum Ended {
    Reboot,
}

struct SimulatedHost {
    host: Host,
    number: usize,
    events: UnboundedSender<HostEvent>,
    boot: u32,
    image: String,
    plan: Option<wire::CarriedPlan>,
    node: Option<wire::CarriedNode>,
    /// The step after the reboot of the plan in flight.
    resume_at: usize,
}

impl SimulatedHost {
    fn emit(&self, kind: EventKind) {
        // The figure is taken: nothing listens any more.
        let _ = self.events.send(HostEvent { kind, at: Instant::now() });
    }

    fn system(&self) -> wire::SystemState {
        wire::SystemState {
            boot_id: format!("{}-{}", self.host.name, self.boot),
            image: self.image.clone(),
            boot_mode: wire::BootMode::Active.into(),
            hostname: self.host.name.clone(),
            addresses: vec![format!("10.9.{}.{}", self.number / 256 % 256, self.number % 256)],
            snapshot: self.boot + 1,
            state_failure: String::new(),
            left_in_kernel: Vec::new(),
            left_behind: Vec::new(),
            kept_paths: Vec::new(),
        }
    }

    fn hello(&self) -> wire::Hello {
        let carried = wire::Carried {
            plan: self.plan.clone(),
            node: self.node.clone(),
            installed: Some(installed()),
            ..wire::Carried::default()
        };
        wire::Hello {
            system: Some(self.system()),
            agent_version: "bench".to_owned(),
            carried: Some(carried),
            facts: None,
            network: Some(network(self.number)),
            settings: String::new(),
            agent_update: None,
        }
    }

    /// One stream, until a reboot.
    async fn attach_once(&mut self) -> anyhow::Result<Ended> {
        let mut attached = self.host.attach(self.hello()).await?;
        self.emit(EventKind::Attached);
        let report =
            wire::ObservedReport { network: Some(network(self.number)), system: Some(self.system()) };
        attached.client.report_observed(report).await?;
        loop {
            let message = attached.inbound.message().await?;
            let message = message.ok_or_else(|| anyhow::anyhow!("the coordinator closed the stream"))?;
            let Some(wire::coordinator_message::Message::Plan(plan)) = message.message else { continue };
            if let Some(ended) = self.execute(&plan, &mut attached).await? {
                return Ok(ended);
            }
        }
    }

    /// Reports the steps of a plan done, up to a reboot.
    async fn execute(&mut self, plan: &wire::Plan, attached: &mut Attached) -> anyhow::Result<Option<Ended>> {
        let is_known = self.plan.as_ref().is_some_and(|carried| carried.id == plan.id);
        if !is_known {
            self.emit(EventKind::PlanReceived);
            self.resume_at = 0;
            self.plan = Some(wire::CarriedPlan {
                id: plan.id.clone(),
                generation: plan.generation,
                checksum: plan.checksum.clone(),
                kind: plan.kind,
                outcome: wire::PlanOutcome::InProgress.into(),
            });
        }
        let acknowledgement = wire::PlanAcknowledgement {
            plan_id: plan.id.clone(),
            generation: plan.generation,
            failure: None,
        };
        let message = Some(Message::Acknowledgement(acknowledgement));
        attached.outbound.send(wire::HostMessage { message }).await?;
        for (index, step) in plan.steps.iter().enumerate().skip(self.resume_at) {
            if matches!(step.action, Some(Action::Reboot(_))) {
                self.boot += 1;
                self.resume_at = index + 1;
                return Ok(Some(Ended::Reboot));
            }
            self.apply(step);
            let is_last = index + 1 == plan.steps.len();
            let system = is_last.then(|| Box::new(self.system()));
            let done = wire::StepDone { output: String::new(), system };
            let report = wire::StepReport {
                plan_id: plan.id.clone(),
                generation: plan.generation,
                step: u32::try_from(index)?,
                outcome: Some(wire::step_report::Outcome::Done(done)),
            };
            attached.client.report_step(report).await?;
        }
        if let Some(carried) = &mut self.plan {
            carried.outcome = wire::PlanOutcome::Applied.into();
        }
        self.emit(EventKind::PlanApplied);
        Ok(None)
    }

    /// What a step leaves on the host.
    fn apply(&mut self, step: &wire::Step) {
        match &step.action {
            Some(Action::UpgradeSystem(upgrade)) => self.image.clone_from(&upgrade.image),
            Some(Action::WriteNodeIdentity(node)) => {
                let wire::WriteNodeIdentity { uuid, provider_id, owner } = node.clone();
                self.node = Some(wire::CarriedNode { provider_id, uuid, owner });
            }
            Some(Action::RemoveNodeIdentity(_)) => self.node = None,
            _ => {}
        }
    }
}

//! The `baremetal-agent` command: one static file, eleven verbs.

use std::convert::Infallible;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};
use std::time::{Duration, SystemTime};

use agent::alive::{check, supervisor};
use agent::boot;
use agent::boot::assessment::{self, Assessment};
use agent::console::screen::draw_page;
use agent::console::status;
use agent::ground::failure::Failure;
use agent::ground::paths::Root;
use agent::ground::version::own_version;
use agent::host::elemental::Elemental;
use agent::host::facts;
use agent::host::network::settle::SettledNetwork;
use agent::host::network::{KernelNetwork, NetworkObserver as _};
use agent::installed::link::{self, ExitReason};
use agent::live::installed_disk::KernelMounts;
use agent::live::register;
use agent::plan::executor::{CustomInstructions, Executor, Policy};
use agent::plan::staged;
use agent::update::launch;
use agent::update::program;
use agent::update::record::Purpose;
use lexopt::prelude::*;
use proto::plan::PlanId;
use proto::staged::EXECUTION_DIRECTORY;

/// An agent that has done its duty for this long works.
const DUTY_PROOF: Duration = Duration::from_secs(30);

const USAGE: &str = "\
Usage: baremetal-agent [OPTIONS] VERB

  register  in a live system: register this host, install it, reboot
  run       in an installed system: attach to the coordinator and run plans
  run-plan ID  in an installed system: run the plan that an upstream agent
            has staged under this id, and print the result
  boot      at every early boot: wipe, restore the seed, identify the node
  alive     take part in holding the endpoint of the cluster
  check-api tell keepalived whether this host may hold the endpoint
  check     tell the boot assessment whether this system works
  units     at early boot: write the units that run this file, for an image
            that does not carry the agent
  facts     print the content of a registration, and the template keys
  status    print the identity, the system and the plan of this host
  console   show the same with the next action on the terminal, until stopped

Options:
  --root DIRECTORY             the host's files, default /
  --allow-custom-instructions  run plans that the coordinator did not write
";

#[derive(Clone, Debug, PartialEq, Eq)]
enum Verb {
    Register,
    Run,
    RunPlan(PlanId),
    Boot,
    Alive,
    CheckApi,
    Check,
    Units,
    Facts,
    Status,
    Console,
}

struct Arguments {
    verb: Verb,
    root: Root,
    policy: Policy,
}

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        // The journal has its own clock.
        .without_time()
        .with_target(false)
        .init();
    match parse_arguments() {
        Ok(Some(arguments)) => {
            hand_over(&arguments);
            carry_out(arguments)
        }
        Ok(None) => {
            print!("{USAGE}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("baremetal-agent: {error}\n\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn parse_arguments() -> Result<Option<Arguments>, lexopt::Error> {
    let (mut verb, mut root, mut policy) = (None, Root::host(), Policy::default());
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("root") => root = Root::at(parser.value()?),
            Long("allow-custom-instructions") => policy.custom = CustomInstructions::Allow,
            Short('h') | Long("help") => return Ok(None),
            Value(name) if verb.is_none() => verb = Some(parse_verb(&name.string()?, &mut parser)?),
            other => return Err(other.unexpected()),
        }
    }
    let verb = verb.ok_or("a verb is missing")?;
    Ok(Some(Arguments { verb, root, policy }))
}

fn parse_verb(name: &str, parser: &mut lexopt::Parser) -> Result<Verb, lexopt::Error> {
    Ok(match name {
        "register" => Verb::Register,
        "run" => Verb::Run,
        "run-plan" => Verb::RunPlan(parser.value()?.parse_with(PlanId::parse)?),
        "boot" => Verb::Boot,
        "alive" => Verb::Alive,
        "check-api" => Verb::CheckApi,
        "check" => Verb::Check,
        "units" => Verb::Units,
        "facts" => Verb::Facts,
        "status" => Verb::Status,
        "console" => Verb::Console,
        _ => return Err(format!("there is no verb {name:?}").into()),
    })
}

fn purpose_of(verb: &Verb) -> Purpose {
    match verb {
        Verb::Run => Purpose::Attach,
        Verb::Boot => Purpose::Boot,
        Verb::Alive => Purpose::Duty,
        _ => Purpose::Other,
    }
}

/// Replaces this process by a newer agent, if there is one. The verbs that are left out run within
/// another start of the agent, or do not need a newer one.
fn hand_over(arguments: &Arguments) {
    let Arguments { verb, root, .. } = arguments;
    if matches!(verb, Verb::Register | Verb::Units | Verb::CheckApi | Verb::Facts) {
        return;
    }
    while let Some(newer) = launch::choose_program(root, &own_version(), purpose_of(verb)) {
        let path = newer.path(&root.state());
        let error = Command::new(path).args(std::env::args_os().skip(1)).exec();
        if let Err(error) = launch::give_up(root, &newer.version, format!("it cannot be started: {error}")) {
            tracing::warn!(%error, "cannot start the updated agent, falling back to the image's");
            return;
        }
    }
}

fn carry_out(arguments: Arguments) -> ExitCode {
    let Arguments { verb, root, policy } = arguments;
    match verb {
        Verb::Register => with_runtime(register_host(&root)),
        Verb::Run => with_runtime(run_executor(&root, policy)),
        Verb::RunPlan(id) => with_runtime(run_plan(&root, &id)),
        Verb::Boot => early_boot(&root),
        Verb::Alive => with_runtime(do_duty(&root)),
        Verb::CheckApi => with_runtime(check_api(&root)),
        Verb::Check => with_runtime(check_boot(&root)),
        Verb::Units => lay_units(&root),
        Verb::Facts => print_facts(&root),
        Verb::Status => {
            print!("{}", status::render_status(&root, SystemTime::now()));
            ExitCode::SUCCESS
        }
        Verb::Console => match draw_page(&root, &mut std::io::stdout().lock()) {
            Ok(never) => match never {},
            Err(error) => print_failure(&error),
        },
    }
}

fn lay_units(root: &Root) -> ExitCode {
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => {
            println!("baremetal: cannot read the path of this program: {error}");
            return ExitCode::FAILURE;
        }
    };
    match program::write_units(root, &program) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => print_failure(&error),
    }
}

/// The agent waits most of the time, so one thread is enough.
fn with_runtime(work: impl Future<Output = ExitCode>) -> ExitCode {
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(work),
        Err(error) => {
            println!("baremetal: cannot start the runtime: {error}");
            ExitCode::FAILURE
        }
    }
}

fn print_failure(failure: &Failure) -> ExitCode {
    // The units connect standard output to the console.
    println!("baremetal: {failure}");
    ExitCode::FAILURE
}

async fn register_host(root: &Root) -> ExitCode {
    let system = Elemental::new(root.clone());
    let network = SettledNetwork::new(KernelNetwork::below(root));
    match Box::pin(register::register(root, &system, &KernelMounts::below(root), &network)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => print_failure(&error),
    }
}

async fn run_executor(root: &Root, policy: Policy) -> ExitCode {
    let system = Elemental::new(root.clone());
    let opened = staged::lock_plans(root)
        .and_then(|lock| Ok((lock, Executor::open(root.clone(), system.clone(), policy)?)));
    let (_lock, executor) = match opened {
        Ok(opened) => opened,
        Err(error) => return print_failure(&error),
    };
    match Box::pin(link::run(root, system, executor, &KernelNetwork::below(root), own_version())).await {
        Ok(ExitReason::Updated | ExitReason::GivenUp) => ExitCode::SUCCESS,
        Err(error) => print_failure(&error),
    }
}

async fn run_plan(root: &Root, id: &PlanId) -> ExitCode {
    let system = Elemental::new(root.clone());
    let execution = std::env::var_os(EXECUTION_DIRECTORY);
    let output = &mut std::io::stdout();
    match Box::pin(staged::run_staged_plan(root, system, id, execution.as_deref(), output)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => print_failure(&error),
    }
}

fn early_boot(root: &Root) -> ExitCode {
    if let Ok(file) = std::env::current_exe() {
        launch::remove_unneeded(root, &own_version(), &file);
    }
    let summary = boot::run(root);
    for line in &summary.done {
        println!("baremetal: {line}");
    }
    for problem in &summary.problems {
        println!("baremetal: {problem}");
    }
    if summary.problems.is_empty() {
        launch::record_proven(root, &own_version(), Purpose::Boot);
    }
    // The host must come up far enough to report the failure.
    ExitCode::SUCCESS
}

async fn do_duty(root: &Root) -> ExitCode {
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => {
            println!("baremetal: cannot read the path of this program: {error}");
            return ExitCode::FAILURE;
        }
    };
    let record_proven = || launch::record_proven(root, &own_version(), Purpose::Duty);
    let prove = async {
        tokio::time::sleep(DUTY_PROOF).await;
        record_proven();
        std::future::pending::<Infallible>().await
    };
    let ended = tokio::select! {
        ended = supervisor::run(root, &program) => ended,
        never = prove => match never {},
    };
    match ended {
        Ok(()) => {
            record_proven();
            ExitCode::SUCCESS
        }
        Err(error) => print_failure(&error),
    }
}

async fn check_api(root: &Root) -> ExitCode {
    match check::check_api(root).await {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => print_failure(&error),
    }
}

async fn check_boot(root: &Root) -> ExitCode {
    let (assessment, code) = match assessment::check_boot(root).await {
        Assessment::Good(why) => (format!("good: {why}"), ExitCode::SUCCESS),
        Assessment::Undecided(why) => (format!("undecided: {why}"), ExitCode::FAILURE),
        Assessment::Broken(why) => (format!("broken: {why}"), ExitCode::FAILURE),
    };
    println!("baremetal: this boot is {assessment}");
    code
}

fn print_facts(root: &Root) -> ExitCode {
    let network = KernelNetwork::below(root)
        .observe()
        .inspect_err(|error| tracing::warn!(%error, "cannot observe the network"))
        .ok();
    println!("{:#}", facts::render_facts(root, network.as_ref()));
    ExitCode::SUCCESS
}

//! The parts of a release: `bundle image` writes the image of the coordinator, `bundle manifests` the
//! repository for `clusterctl`, `bundle chart` the Helm chart, `bundle plugin` the archive for krew, and
//! `bundle bill` the SBOM of a program. `bundle contents` compares SBOMs and licences with the packages
//! of the programs.

use std::path::{Path, PathBuf};
use std::process::{Command as Process, ExitCode};

use anyhow::{Context as _, ensure};
use bundle::archive::{Entry, gzip, tar};
use bundle::bill::reduce_bill;
use bundle::components::Sources;
use bundle::contents::{PROGRAMS, check_bill, check_notices, find_paths};
use bundle::image::Image;
use bundle::packages::parse_tree;
use bundle::plugin::{Package, Plugin};
use bundle::signature::sign_agent;
use bundle::{IMAGE, VERSION};
use clap::{Args, Parser};
use proto::update_keys::ReleaseSignature;

/// Makes the files that operators install.
#[derive(Parser)]
#[command(name = "bundle")]
enum Command {
    /// The image of the coordinator, as an archive of an OCI layout.
    Image(ImageArguments),
    /// A repository of `clusterctl` with this version of the provider, alert rules and dashboard.
    Manifests {
        /// Directory of the repository, for `infrastructure-baremetal/vVERSION` and `observability`.
        #[arg(long)]
        output: PathBuf,
    },
    /// The Helm chart as an archive.
    Chart {
        /// Directory for the archive; its path is printed.
        #[arg(long)]
        output: PathBuf,
    },
    /// The archive of `kubectl baremetal` and its krew manifest.
    Plugin(PluginArguments),
    /// The SBOM of a program: the output of `cargo cyclonedx` without the packages of other programs, and
    /// with the libraries beside the crates.
    Bill(BillArguments),
    /// Fails if an SBOM or the licences lack a package of a program, an SBOM names a package too many, or a
    /// program names a path of this machine.
    Contents {
        /// A static program; may be repeated.
        #[arg(long = "program", required = true)]
        programs: Vec<PathBuf>,
        /// Target of the programs.
        #[arg(long)]
        target: String,
        /// Licences of the packages of the programs.
        #[arg(long)]
        notices: PathBuf,
        /// The directory of the release.
        #[arg(long)]
        output: PathBuf,
    },
}

#[derive(Args)]
struct PluginArguments {
    /// The static plugin.
    #[arg(long)]
    program: PathBuf,
    /// Licences of the packages of the program.
    #[arg(long)]
    notices: PathBuf,
    /// URL below which the archive is served.
    #[arg(long)]
    url: String,
    /// Directory for both; their paths are printed.
    #[arg(long)]
    output: PathBuf,
}

#[derive(Args)]
struct BillArguments {
    /// The package of the program.
    #[arg(long)]
    program: String,
    /// Target of the program.
    #[arg(long)]
    target: String,
    /// Version of the C library.
    #[arg(long)]
    glibc: String,
    /// Version of GCC's runtime.
    #[arg(long)]
    libgcc: String,
    /// The output of `cargo cyclonedx`.
    #[arg(long)]
    input: PathBuf,
    /// The SBOM; its path is printed.
    #[arg(long)]
    output: PathBuf,
}

#[derive(Args)]
struct ImageArguments {
    /// The static coordinator.
    #[arg(long)]
    coordinator: PathBuf,
    /// The static agent.
    #[arg(long)]
    agent: PathBuf,
    /// The private key for updates (Ed25519, PEM), which signs the agent.
    #[arg(long)]
    agent_update_key: Option<PathBuf>,
    /// Public keys (PEM, at most four) that hosts trust for updates from this agent on; by default the
    /// public key of the private one.
    #[arg(long, requires = "agent_update_key")]
    agent_update_trust: Option<PathBuf>,
    /// Licences of the packages of both programs.
    #[arg(long)]
    notices: PathBuf,
    /// NAME:TAG of the loaded image.
    #[arg(long, default_value = IMAGE)]
    reference: String,
    /// Commit of the sources.
    #[arg(long)]
    revision: Option<String>,
    /// Directory for the archive; its path is printed.
    #[arg(long)]
    output: PathBuf,
}

/// Name of the chart, and of the directory in its archive.
const CHART: &str = "baremetal-coordinator";

fn main() -> ExitCode {
    let result = match Command::parse() {
        Command::Image(arguments) => write_image(&arguments),
        Command::Manifests { output } => write_manifests(&output),
        Command::Chart { output } => write_chart(&output),
        Command::Plugin(arguments) => write_plugin(&arguments),
        Command::Bill(arguments) => write_bill(&arguments),
        Command::Contents { programs, target, notices, output } => {
            check_programs(&programs).and_then(|()| check_contents(&target, &notices, &output))
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bundle: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn write_image(arguments: &ImageArguments) -> anyhow::Result<()> {
    let ImageArguments { coordinator, agent, notices, reference, revision, output, .. } = arguments;
    let agent = read_file(agent)?;
    let image = Image {
        coordinator: read_file(coordinator)?,
        signature: sign_release(&agent, arguments)?,
        agent,
        notices: read_file(notices)?,
        reference: reference.clone(),
        revision: revision.clone(),
    };
    let archive = image.build()?;
    let (architecture, nodes) = (image.architecture()?, Sources::of_checkout().architecture()?);
    ensure!(
        architecture == nodes,
        "the image is for {architecture}, the Deployment for nodes with {nodes}: correct kubernetes.io/arch in coordinator/config/manager.yaml and coordinator/chart/values.yaml"
    );
    let name = format!("baremetal-coordinator-{VERSION}-{architecture}.oci.tar");
    write_file(&output.join(name), &archive)
}

fn sign_release(agent: &[u8], arguments: &ImageArguments) -> anyhow::Result<Option<ReleaseSignature>> {
    let Some(key) = &arguments.agent_update_key else { return Ok(None) };
    let trusted = arguments.agent_update_trust.as_deref().map(read_file).transpose()?;
    let signed = sign_agent(agent, &read_file(key)?, trusted.as_deref());
    Ok(Some(signed.with_context(|| format!("sign the agent by {}", key.display()))?))
}

fn write_manifests(output: &Path) -> anyhow::Result<()> {
    let directory = output.join(format!("infrastructure-baremetal/v{VERSION}"));
    for (name, content) in Sources::of_checkout().repository()? {
        write_file(&directory.join(name), content.as_bytes())?;
    }
    for (name, content) in Sources::of_checkout().observability()? {
        write_file(&output.join(name), content.as_bytes())?;
    }
    Ok(())
}

fn write_chart(output: &Path) -> anyhow::Result<()> {
    let files = Sources::of_checkout().chart()?;
    let entries = files.into_iter().map(|(name, text)| Entry::file(format!("{CHART}/{name}"), text));
    write_file(&output.join(format!("{CHART}-{VERSION}.tgz")), &gzip(&tar(entries.collect())?)?)
}

fn write_plugin(arguments: &PluginArguments) -> anyhow::Result<()> {
    let PluginArguments { program, notices, url, output } = arguments;
    let plugin = Plugin { program: read_file(program)?, notices: read_file(notices)? };
    let Package { name, archive, manifest } = plugin.package(url)?;
    write_file(&output.join(name), &archive)?;
    write_file(&output.join("baremetal.yaml"), manifest.as_bytes())
}

fn write_bill(arguments: &BillArguments) -> anyhow::Result<()> {
    let BillArguments { program, target, glibc, libgcc, input, output } = arguments;
    let packages = parse_tree(&list_packages(program, target)?);
    let text = String::from_utf8(read_file(input)?)?;
    let bill = reduce_bill(&text, &packages, [glibc, libgcc]);
    write_file(output, bill.with_context(|| format!("read {}", input.display()))?.as_bytes())
}

fn check_programs(programs: &[PathBuf]) -> anyhow::Result<()> {
    let home = read_path("CARGO_HOME").or_else(|| Some(format!("{}/.cargo", read_path("HOME")?)));
    let checkout = std::env::current_dir()?.display().to_string();
    let paths: Vec<_> = home.into_iter().chain(read_path("CARGO_TARGET_DIR")).chain([checkout]).collect();
    let paths: Vec<_> = paths.iter().map(String::as_str).collect();
    for program in programs {
        let found = find_paths(&read_file(program)?, &paths);
        ensure!(
            found.is_empty(),
            "{} names {}, of this machine: add the path to REMAP of the Makefile and build again",
            program.display(),
            found.join(", ")
        );
    }
    Ok(())
}

/// A path from the environment. `/` is left out, because every program names it.
fn read_path(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|path| path.len() > 1)
}

/// Compares SBOMs and licences with the packages that cargo builds the programs of.
fn check_contents(target: &str, notices: &Path, output: &Path) -> anyhow::Result<()> {
    let notices = String::from_utf8(read_file(notices)?).context("the licences are no text")?;
    let home = ["HOME", "CARGO_HOME"].into_iter().filter_map(read_path);
    let places = [std::env::current_dir()?, std::env::temp_dir()].map(|path| path.display().to_string());
    let paths: Vec<_> = home.chain(places.into_iter().filter(|path| path.len() > 1)).collect();
    let paths: Vec<_> = paths.iter().map(String::as_str).collect();
    let mut wrong = vec![];
    for (program, name) in PROGRAMS {
        let packages = parse_tree(&list_packages(program, target)?);
        ensure!(packages.len() > 1, "cargo tree named no package of {program}");
        let bill = output.join(format!("sbom/{name}.cdx.json"));
        let text = String::from_utf8(read_file(&bill)?)?;
        let found =
            check_bill(&text, &packages, &paths).with_context(|| format!("read {}", bill.display()))?;
        wrong.extend(found.into_iter().map(|fault| format!("SBOM of {program}: {fault}")));
        let found = check_notices(&notices, program, &packages);
        wrong.extend(found.into_iter().map(|fault| format!("licences of {program}: {fault}")));
    }
    ensure!(wrong.is_empty(), "the release does not say what is in it:\n{}", wrong.join("\n"));
    Ok(())
}

fn list_packages(program: &str, target: &str) -> anyhow::Result<String> {
    let mut cargo = Process::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["tree", "--locked", "--edges", "normal", "--prefix", "none", "--format", "{p}"]);
    let output = cargo.args(["--target", target, "--package", program]).output().context("run cargo tree")?;
    ensure!(output.status.success(), "cargo tree of {program}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

fn read_file(path: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("read {}", path.display()))
}

/// Writes a file and prints its path. A half-written file is never visible.
fn write_file(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    let failed = || format!("write {}", path.display());
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory).with_context(failed)?;
    }
    let unfinished = path.with_added_extension("unfinished");
    std::fs::write(&unfinished, content).with_context(failed)?;
    std::fs::rename(&unfinished, path).with_context(failed)?;
    println!("{}", path.display());
    Ok(())
}

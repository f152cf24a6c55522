//! A real TPM 2.0 in software for each host of a test: swtpm, with the
//! certificate of a vendor that the test makes up.

// The exemption for tests does not reach a crate that is for tests alone.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::missing_panics_doc)]

mod vendor;

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use agent::identity::tpm::Tpm;
use tpm2_protocol::basic::TpmHandle;
use tpm2_protocol::data::{
    Tpm2bAuth, Tpm2bDigest, Tpm2bMaxNvBuffer, Tpm2bNonce, Tpm2bNvPublic, TpmAlgId, TpmRh, TpmSu, TpmaNv,
    TpmaSession, TpmsAuthCommand, TpmsNvPublic, TpmtPublic,
};
use tpm2_protocol::frame::{
    TpmClearCommand, TpmClearResponse, TpmEvictControlCommand, TpmEvictControlResponse,
    TpmNvDefineSpaceCommand, TpmNvDefineSpaceResponse, TpmNvWriteCommand, TpmNvWriteResponse,
    TpmStartupCommand, TpmStartupResponse,
};

pub use vendor::Vendor;

/// How long a start may take on a busy machine.
const START: Duration = Duration::from_mins(2);
/// What one write to an index holds at most.
const CHUNK: usize = 512;

/// Name of the socket of its control channel.
const CONTROL: &str = "control";
/// `CMD_INIT` of the control channel of swtpm, without flags.
const INIT: [u8; 8] = [0, 0, 0, 2, 0, 0, 0, 0];

/// A TPM, switched on. Dropping it switches it off and forgets its seeds.
#[derive(Debug)]
pub struct Swtpm {
    process: Child,
    directory: tempfile::TempDir,
}

impl Swtpm {
    /// A new TPM with keys of its own.
    pub fn start() -> Self {
        let directory = tempfile::Builder::new().prefix("tpm-").tempdir().unwrap();
        let (state, socket) = (directory.path().join("state"), directory.path().join("data"));
        std::fs::create_dir(&state).unwrap();
        let log = std::fs::File::create(directory.path().join("log")).unwrap();
        // Killed with the thread of the test that started it.
        let process = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "swtpm", "socket", "--tpm2"])
            .args(["--flags", "not-need-init,startup-clear"])
            .args(["--tpmstate", &format!("dir={}", state.display())])
            .args(["--server", &format!("type=unixio,path={}", socket.display())])
            .args(["--ctrl", &format!("type=unixio,path={}", directory.path().join(CONTROL).display())])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .expect("setpriv and swtpm of iso/packages.host");
        let mut tpm = Self { process, directory };
        tpm.wait_until_ready();
        tpm
    }

    fn wait_until_ready(&mut self) {
        let end = Instant::now() + START;
        // A socket that exists may not listen yet, and there is no other sign.
        while UnixStream::connect(self.socket()).is_err() {
            let ended = self.process.try_wait().unwrap();
            let log = std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
            assert!(ended.is_none() && Instant::now() < end, "swtpm does not start ({ended:?}): {log}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Where it takes commands.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// Resets it, as a boot of its host and its firmware do.
    pub fn reset(&self) {
        reset(self.directory.path());
    }

    /// [`Swtpm::reset`], for the host that it is fitted in.
    pub fn resetter(&self) -> impl Fn() + Send + Sync + 'static {
        let directory = self.directory.path().to_owned();
        move || reset(&directory)
    }

    /// Clears it, as root of its host can: its counters begin again.
    pub fn clear(&self) {
        let command = TpmClearCommand { handles: [TpmHandle::new(TpmRh::Lockout as u32)] };
        let _: TpmClearResponse = self.open().run("Clear", &command, &[password()]).unwrap();
    }

    /// A root directory of a host that has this TPM.
    pub fn host_root(&self) -> agent::ground::paths::Root {
        let root = self.directory.path().join("root");
        fit(&root, &self.socket());
        agent::ground::paths::Root::at(root)
    }

    pub fn open(&self) -> Tpm {
        Tpm::open(&self.socket()).unwrap()
    }

    /// Leaves a key of that template where installers leave the endorsement key.
    pub fn persist_key(&self, template: TpmtPublic) {
        let mut tpm = self.open();
        let (key, _) = tpm.create_primary(template).unwrap();
        let command = TpmEvictControlCommand {
            handles: [TpmHandle::new(TpmRh::Owner as u32), key],
            persistent_handle: TpmHandle::new(proto::tpm::ENDORSEMENT_HANDLE),
        };
        let _: TpmEvictControlResponse = tpm.run("EvictControl", &command, &[password()]).unwrap();
    }

    /// Leaves a certificate in it, as its vendor does, with `filler` behind it.
    pub fn write_certificate(&self, certificate: &[u8], filler: &[u8]) {
        self.write_index(&[certificate, filler].concat(), &[TpmaNv::OWNERREAD, TpmaNv::AUTHREAD]);
    }

    /// Leaves a certificate that only the platform's firmware may read.
    pub fn hide_certificate(&self, certificate: &[u8]) {
        self.write_index(certificate, &[TpmaNv::PPREAD]);
    }

    fn write_index(&self, contents: &[u8], readers: &[TpmaNv]) {
        let (mut tpm, owner) = (self.open(), TpmHandle::new(TpmRh::Owner as u32));
        let index = TpmHandle::new(proto::tpm::ENDORSEMENT_CERTIFICATE);
        let bits = [&[TpmaNv::OWNERWRITE, TpmaNv::NO_DA], readers].concat();
        let public = TpmsNvPublic {
            nv_index: index,
            name_alg: TpmAlgId::Sha256,
            attributes: TpmaNv::from_bits_truncate(bits.iter().fold(0, |bits, bit| bits | bit.bits())),
            auth_policy: Tpm2bDigest::default(),
            data_size: u16::try_from(contents.len()).unwrap().into(),
        };
        let define = TpmNvDefineSpaceCommand {
            handles: [owner],
            auth: Tpm2bAuth::default(),
            public_info: Tpm2bNvPublic { inner: public },
        };
        let _: TpmNvDefineSpaceResponse = tpm.run("NV_DefineSpace", &define, &[password()]).unwrap();
        for (number, chunk) in contents.chunks(CHUNK).enumerate() {
            let write = TpmNvWriteCommand {
                handles: [owner, index],
                data: Tpm2bMaxNvBuffer::try_from(chunk).unwrap(),
                offset: u16::try_from(number * CHUNK).unwrap().into(),
            };
            let _: TpmNvWriteResponse = tpm.run("NV_Write", &write, &[password()]).unwrap();
        }
    }
}

fn reset(directory: &Path) {
    let mut control = UnixStream::connect(directory.join(CONTROL)).unwrap();
    control.write_all(&INIT).unwrap();
    let mut result = [0; 4];
    control.read_exact(&mut result).unwrap();
    assert_eq!(result, [0; 4], "swtpm is not initialized again");
    let mut tpm = Tpm::open(&directory.join("data")).unwrap();
    let command = TpmStartupCommand { handles: [], startup_type: TpmSu::Clear };
    let _: TpmStartupResponse = tpm.run("Startup", &command, &[]).unwrap();
}

/// Puts the TPM behind `socket` into the host whose files are below `root`.
fn fit(root: &Path, socket: &Path) {
    std::fs::create_dir_all(root.join("dev")).unwrap();
    let device = root.join("dev/tpmrm0");
    if !device.exists() {
        std::os::unix::fs::symlink(socket, device).unwrap();
    }
}

/// Authorization with the empty password.
pub fn password() -> TpmsAuthCommand {
    TpmsAuthCommand {
        session_handle: TpmHandle::new(TpmRh::Pw as u32),
        nonce: Tpm2bNonce::default(),
        session_attributes: TpmaSession::empty(),
        hmac: Tpm2bAuth::default(),
    }
}

impl Drop for Swtpm {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

//! Channels to a TPM: the kernel's resource manager, or the data channel of an emulator.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use tpm2_protocol::constant::TPM_MAX_COMMAND_SIZE;

/// The header holds the tag, the size of the whole response, and a code.
const HEADER_BYTES: usize = 10;
/// A hanging emulator must not block the agent; the kernel has deadlines of its own.
const SOCKET_DEADLINE: Duration = Duration::from_mins(2);

#[derive(Debug)]
pub(super) enum Channel {
    Device(File),
    /// A socket at the path of the device: `swtpm socket --server type=unixio`.
    Socket(UnixStream),
}

impl Channel {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        if std::fs::metadata(path)?.file_type().is_socket() {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(SOCKET_DEADLINE))?;
            return Ok(Self::Socket(stream));
        }
        Ok(Self::Device(OpenOptions::new().read(true).write(true).open(path)?))
    }

    /// Sends a command and receives the response to it.
    pub(super) fn exchange(&mut self, command: &[u8]) -> io::Result<Vec<u8>> {
        match self {
            Self::Device(device) => exchange_on(device, command),
            Self::Socket(stream) => exchange_on(stream, command),
        }
    }
}

fn exchange_on(stream: &mut (impl Read + Write), command: &[u8]) -> io::Result<Vec<u8>> {
    // The kernel expects each command in one write.
    if stream.write(command)? != command.len() {
        return Err(io::Error::new(io::ErrorKind::WriteZero, "the command was cut"));
    }
    let mut response = vec![0; TPM_MAX_COMMAND_SIZE];
    let mut length = 0;
    while length < response_size(&response[..length])? {
        match stream.read(&mut response[length..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => length += read,
        }
    }
    response.truncate(length);
    Ok(response)
}

/// The size of a response, from its first bytes.
fn response_size(response: &[u8]) -> io::Result<usize> {
    let [_, _, a, b, c, d, ..] = *response else { return Ok(HEADER_BYTES) };
    match usize::try_from(u32::from_be_bytes([a, b, c, d])) {
        Ok(size) if (HEADER_BYTES..=TPM_MAX_COMMAND_SIZE).contains(&size) => Ok(size),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "the response has an impossible size")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_response_is_bounded() {
        let sized = |size: u32| [&[0x80, 1][..], &size.to_be_bytes()].concat();
        for (name, begun, want) in [
            ("nothing yet", vec![], Some(10)),
            ("half a size", vec![0x80, 1, 0, 0], Some(10)),
            ("shortest", sized(10), Some(10)),
            ("longest", sized(4096), Some(4096)),
            ("too short", sized(9), None),
            ("too long", sized(4097), None),
        ] {
            assert_eq!(response_size(&begun).ok(), want, "{name}");
        }
    }
}

//! Downloads of seed ISOs and their checksums, by token.
//!
//! Every wrong URL has the same answer, 404, because a guess must not learn if it was close.

use std::io::SeekFrom;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use bytes::Bytes;
use futures::Stream;
use http::{HeaderMap, HeaderName, StatusCode, header};
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};

use super::layout::Extent;
use super::open::Opened;
use super::overlay::Piece;
use super::{Iso, SeedIsos, Sources};
use crate::base_image::Lease;

/// Seconds after which a client repeats a download.
const RETRY_AFTER: &str = "10";
/// Bytes that a download holds in memory.
const CHUNK: usize = 64 * 1024;

pub fn download_router(isos: Arc<SeedIsos>) -> Router {
    Router::new().route("/elemental/seedimage/{token}/{file}", get(answer_request)).with_state(isos)
}

async fn answer_request(
    State(isos): State<Arc<SeedIsos>>,
    Path((token, file)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    let Some(wanted) = parse_file(&file) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let name = match wanted {
        Wanted::Checksum { iso } => iso,
        Wanted::Iso => &file,
    };
    match (isos.open_iso(&token, name).await, wanted) {
        (Opened::Ready(iso, _), Wanted::Checksum { .. }) => checksum_response(&iso, name),
        (Opened::Ready(iso, lease), Wanted::Iso) => send_iso(&iso, lease, &headers),
        (Opened::Preparing, _) => {
            let retry = [(header::RETRY_AFTER, RETRY_AFTER)];
            let text = "this replica of the coordinator does not have the base ISO yet: retry\n";
            (StatusCode::SERVICE_UNAVAILABLE, retry, text).into_response()
        }
        (Opened::Unknown, _) => StatusCode::NOT_FOUND.into_response(),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Wanted<'a> {
    Iso,
    Checksum { iso: &'a str },
}

/// Parses the name of a requested file. The name must be plain, because the checksum file repeats
/// it.
fn parse_file(file: &str) -> Option<Wanted<'_>> {
    let is_plain = file.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:+".contains(&byte));
    if file.len() > 255 || !is_plain {
        return None;
    }
    let iso = file.strip_suffix(".sha256");
    iso.unwrap_or(file).strip_suffix(".iso")?;
    Some(iso.map_or(Wanted::Iso, |iso| Wanted::Checksum { iso }))
}

/// The format of sha256sum, for a download that keeps its name.
fn checksum_response(iso: &Iso, name: &str) -> Response {
    let line = format!("{}  {name}\n", iso.sha256);
    ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], line).into_response()
}

#[derive(Debug, PartialEq, Eq)]
enum Range {
    Whole,
    Part(Extent),
    Unsatisfiable,
}

/// Parses a range of RFC 9110. Several ranges, and text that is no range, mean the whole.
fn parse_range(text: Option<&str>, size: u64) -> Range {
    let Some((first, last)) = text.and_then(|text| text.strip_prefix("bytes=")?.split_once('-')) else {
        return Range::Whole;
    };
    match (first.parse::<u64>(), last.parse::<u64>()) {
        (Ok(first), Ok(last)) if first <= last => find_part(first, last.saturating_add(1), size),
        (Ok(first), Err(_)) if last.is_empty() => find_part(first, u64::MAX, size),
        (Err(_), Ok(0)) if first.is_empty() => Range::Unsatisfiable,
        (Err(_), Ok(count)) if first.is_empty() => find_part(size.saturating_sub(count), size, size),
        _ => Range::Whole,
    }
}

fn find_part(at: u64, end: u64, size: u64) -> Range {
    if at >= end || at >= size {
        return Range::Unsatisfiable;
    }
    Range::Part(Extent { at, len: end.min(size) - at })
}

fn send_iso(iso: &Iso, lease: Lease, headers: &HeaderMap) -> Response {
    let size = iso.overlay.size();
    let etag = format!("\"{}\"", iso.sha256);
    // The whole is sent if the client has a part of another version, because a part would not fit.
    let is_current = header_text(headers, &header::IF_RANGE).is_none_or(|known| known == etag);
    let range = parse_range(header_text(headers, &header::RANGE).filter(|_| is_current), size);
    let (status, extent, content_range) = match range {
        Range::Whole => (StatusCode::OK, Extent { at: 0, len: size }, None),
        Range::Part(extent) => {
            let last = extent.at + extent.len - 1;
            let range = format!("bytes {}-{last}/{size}", extent.at);
            (StatusCode::PARTIAL_CONTENT, extent, Some(range))
        }
        Range::Unsatisfiable => {
            let none = [(header::CONTENT_RANGE, format!("bytes */{size}"))];
            return (StatusCode::RANGE_NOT_SATISFIABLE, none).into_response();
        }
    };
    let pieces = iso.overlay.pieces(extent);
    let body = Body::from_stream(read_pieces(iso.sources.clone(), pieces, lease));
    let headers = [
        (header::CONTENT_TYPE, "application/x-iso9660-image".to_owned()),
        (header::ACCEPT_RANGES, "bytes".to_owned()),
        (header::CONTENT_LENGTH, extent.len.to_string()),
        (header::ETAG, etag),
    ];
    let content_range = content_range.map(|range| [(header::CONTENT_RANGE, range)]);
    (status, headers, content_range, body).into_response()
}

fn header_text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

fn read_pieces(
    sources: Sources,
    pieces: Vec<Piece>,
    lease: Lease,
) -> impl Stream<Item = std::io::Result<Bytes>> {
    async_stream::try_stream! {
        for piece in pieces {
            let (path, extent) = match piece {
                Piece::Patch(bytes) => {
                    yield bytes;
                    continue;
                }
                Piece::Base(extent) => (&sources.base, extent),
                Piece::Agent(extent) => (&sources.agent, extent),
            };
            let mut file = tokio::fs::File::open(path).await?;
            file.set_max_buf_size(CHUNK);
            file.seek(SeekFrom::Start(extent.at)).await?;
            let mut rest = file.take(extent.len);
            loop {
                let mut chunk = bytes::BytesMut::with_capacity(CHUNK);
                if rest.read_buf(&mut chunk).await? == 0 {
                    break;
                }
                yield chunk.freeze();
            }
        }
        // The lease keeps the file until here.
        drop(lease);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_name_says_what_is_wanted() {
        for (file, want) in [
            ("fleet-2026-01-01T00:00:00Z.iso", Some(Wanted::Iso)),
            ("fleet.iso.sha256", Some(Wanted::Checksum { iso: "fleet.iso" })),
            ("fleet.sha256", None),
            ("fleet", None),
            ("fleet\n.iso", None),
            ("", None),
        ] {
            assert_eq!(parse_file(file), want, "{file:?}");
        }
    }

    #[test]
    fn single_range_is_served_others_yield_whole() {
        let part = |at, len| Range::Part(Extent { at, len });
        for (text, want) in [
            (None, Range::Whole),
            (Some("bytes=0-3"), part(0, 4)),
            (Some("bytes=8-"), part(8, 2)),
            (Some("bytes=8-100"), part(8, 2)),
            (Some("bytes=-3"), part(7, 3)),
            (Some("bytes=-100"), part(0, 10)),
            (Some("bytes=10-"), Range::Unsatisfiable),
            (Some("bytes=-0"), Range::Unsatisfiable),
            (Some("bytes=3-1"), Range::Whole),
            (Some("bytes=0-1,3-4"), Range::Whole),
            (Some("bytes=-"), Range::Whole),
            (Some("lines=0-3"), Range::Whole),
            (Some("nonsense"), Range::Whole),
        ] {
            assert_eq!(parse_range(text, 10), want, "{text:?}");
        }
    }
}

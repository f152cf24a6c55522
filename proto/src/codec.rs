//! Protobuf over gRPC with small buffers, because thousands of streams are open without a message,
//! and each of them keeps one buffer for each direction. The fields of a message are counted before it is
//! decoded, because an empty message has two bytes on the wire and a hundred times as many in memory.

use std::marker::PhantomData;

use prost::Message;
use prost::bytes::Buf as _;
use tonic::Status;
use tonic::codec::{BufferSettings, DecodeBuf, Decoder};
use tonic_prost::{ProstCodec, ProstDecoder};

use crate::fields;

/// Initial size of a buffer, and the step of its growth.
const BUFFER_BYTES: usize = 512;
/// Encoded bytes after which a buffer is sent.
const SENT_BYTES: usize = 32 * 1024;

/// [`ProstCodec`] with smaller buffers than its 8 KiB.
pub(crate) struct Codec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for Codec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

fn buffers() -> BufferSettings {
    BufferSettings::new(BUFFER_BYTES, SENT_BYTES)
}

impl<T, U> tonic::codec::Codec for Codec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = <ProstCodec<T, U> as tonic::codec::Codec>::Encoder;
    type Decoder = BoundedDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::raw_encoder(buffers())
    }

    fn decoder(&mut self) -> Self::Decoder {
        BoundedDecoder(ProstCodec::<U, U>::raw_decoder(buffers()))
    }
}

/// Decodes messages whose number of fields fits their size.
pub(crate) struct BoundedDecoder<U>(ProstDecoder<U>);

impl<U: Message + Default> Decoder for BoundedDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        if !fields::are_bounded(buffer.chunk()) {
            return Err(Status::invalid_argument("the message has too many fields for its size"));
        }
        self.0.decode(buffer)
    }

    fn buffer_settings(&self) -> BufferSettings {
        self.0.buffer_settings()
    }
}

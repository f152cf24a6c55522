//! The macro that makes the enum of reasons, with its texts, from a table.

/// Declares the enum from rows `attention Name "cause" "next action";`. A reason that asks for
/// nothing has no next action.
macro_rules! reasons {
    ($($attention:ident $name:ident $cause:literal $($action:literal)?;)+) => {
        /// Reasons of conditions, over all kinds.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EnumIter, EnumString, IntoStaticStr)]
        pub enum Reason {
            $(#[doc = $cause] $name,)+
        }

        impl Reason {
            /// Cause and next action.
            pub const fn explanation(self) -> Explanation {
                match self {
                    $(Self::$name => $attention($cause $(, $action)?),)+
                }
            }
        }
    };
}

"""Options, in the groups in which help shows them, and which of them go together."""

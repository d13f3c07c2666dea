"""What a run will need and cost, before it starts: `expert-cli train --plan`."""

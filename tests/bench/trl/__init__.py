"""TRL's GRPOTrainer beside ours: in an environment of its own, never a dependency of the product."""

"""Where variables live: their cost, the policy that chooses a server, the plan. No TensorFlow."""

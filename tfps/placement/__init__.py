"""Where variables live: their cost, the policy that chooses a server, and the plan. No TensorFlow."""

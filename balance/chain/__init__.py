"""Chain wing: how `balance.problems.chain.ChainProblem` is answered, one solver a module."""

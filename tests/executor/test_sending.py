"""What can travel to a rank is found out before one exists."""

from __future__ import annotations

import pytest
import torch

from balance.executor.models import mlp
from balance.executor.sending import check_sendable, compact, pack
from balance.problems.model.errors import ExecutionError, OptionError


class Heavy(torch.nn.Module):
    """Counts how often its weight's bytes are asked for."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))


class Broken:
    """Raises something unusual when it is pickled."""

    def __reduce__(self):
        """Fail."""
        raise LookupError("no way")


def test_finding_out_copies_no_tensor(monkeypatch):
    """The check passes over parameters, while the real message holds them."""
    asked = []
    reduce = torch.Tensor.__reduce_ex__
    monkeypatch.setattr(torch.Tensor, "__reduce_ex__", lambda self, level: asked.append(1) or reduce(self, level))
    check_sendable([Heavy(), *mlp(widths=(4, 4))], torch.nn.functional.mse_loss, None)
    assert not asked
    assert len(pack(print, [torch.zeros(1000)])) > 4000


def test_whatever_is_raised_is_explained():
    """Any error of a user's object names what could not be sent and what to do."""
    with pytest.raises(ExecutionError, match=r"optimizer= cannot be sent .* LookupError: no way; define it at the top"):
        check_sendable([], None, Broken())
    with pytest.raises(ExecutionError, match="LookupError: no way"):
        pack(print, [Broken()])


def test_compact():
    """A whole tensor stays what it is; a part leaves the rest behind; what has no data is refused."""
    whole = torch.arange(12.0).reshape(3, 4)
    assert compact(whole).data_ptr() == whole.data_ptr()
    part = compact(whole[:, 1:2])
    assert part.untyped_storage().nbytes() == 12
    assert torch.equal(part, whole[:, 1:2])
    for bad in (torch.zeros(2, device="meta"), torch.zeros(2, 2).to_sparse()):
        with pytest.raises(OptionError, match="dense tensor with data"):
            compact(bad)

"""Linear-chain CRF: scores whole tag sequences, after the tagger's emissions for each token.

score(y) = start[y_1] + sum_t emission[t, y_t] + sum_t transition[y_t, y_t+1] + end[y_T]
p(y) = exp(score(y)) / Z, with Z the sum over all tag sequences (the forward algorithm)

Shapes: B sentences, T tokens of the longest, K tags. Masks are True at the real tokens, which
come first; tags and emissions in the padding are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from elmokit.errors import ElmokitError


class CRF(nn.Module):
    """Transition, start and end scores of tags, trained together with the emissions."""

    def __init__(self, tags: Sequence[str]) -> None:
        """Build a CRF whose scores are all 0 for tags in the order of the emissions."""
        super().__init__()
        if not tags:
            raise ElmokitError("a CRF needs at least one tag")
        self.start = nn.Parameter(torch.zeros(len(tags)))
        self.transitions = nn.Parameter(torch.zeros(len(tags), len(tags)))  # (from, to)
        self.end = nn.Parameter(torch.zeros(len(tags)))
        self.allowed = allowed(tags)

    def negative_log_likelihood(self, emissions: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
        """Return -log p of the right tags (B, T): (B,), 0 for a sentence without tokens.

        Z includes forbidden sequences: the constraints hold only in decoding. Gold tags of real
        files sometimes break the scheme, and would then have probability 0 and an infinite loss.
        """
        if emissions.numel() == 0:
            return emissions.sum(dim=(1, 2))
        emissions = self._without_padding(emissions, mask)
        loss = self._log_partition(emissions, mask) - self._score(emissions, tags, mask)
        return loss.where(mask.any(dim=1), 0.0)

    def decode(self, emissions: Tensor, mask: Tensor) -> list[list[int]]:
        """Return the best allowed tag sequence of each sentence for emissions (B, T, K).

        Where none is allowed (one token, and every tag would need a second one), it is the best of
        all sequences.
        """
        if emissions.numel() == 0:
            return [[] for _ in emissions]
        with torch.no_grad():
            emissions = self._without_padding(emissions, mask)
            best, paths = self._viterbi(emissions, mask, constrained=True)
            impossible = best.isneginf()  # (B,)
            if impossible.any():
                anything = self._viterbi(emissions, mask, constrained=False)[1]
                paths = anything.where(impossible[:, None], paths)
        lengths = mask.sum(dim=1).tolist()
        return [path[:length] for path, length in zip(paths.tolist(), lengths, strict=True)]

    def _without_padding(self, emissions: Tensor, mask: Tensor) -> Tensor:
        """Set the padding to 0 and use the CRF's precision: sums in half precision are coarse."""
        return emissions.to(self.start.dtype).masked_fill(~mask[:, :, None], 0.0)  # (B, T, K)

    def _score(self, emissions: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
        """Return the scores of given tag sequences: (B,)."""
        tags = tags.masked_fill(~mask, 0)  # (B, T); padding may be -1
        last = tags.gather(1, mask.sum(dim=1, keepdim=True).sub(1).clamp(min=0)).squeeze(1)  # (B,)
        emitted = emissions.gather(2, tags[:, :, None]).squeeze(2)  # (B, T)
        moved = self.transitions[tags[:, :-1], tags[:, 1:]] * mask[:, 1:]  # (B, T - 1)
        return self.start[tags[:, 0]] + emitted.sum(dim=1) + moved.sum(dim=1) + self.end[last]

    def _log_partition(self, emissions: Tensor, mask: Tensor) -> Tensor:
        into = self.transitions.T.contiguous()  # (to, from), so that the sum runs along memory
        total = self.start + emissions[:, 0]  # (B, K), log of the sum over what ends in each tag
        for emission, real in _steps(emissions, mask):
            longer = torch.logsumexp(total[:, None, :] + into, dim=2) + emission  # (B, K)
            total = longer.where(real, total)
        return torch.logsumexp(total + self.end, dim=1)

    def _viterbi(
        self, emissions: Tensor, mask: Tensor, *, constrained: bool
    ) -> tuple[Tensor, Tensor]:
        """Return the best sequences (B, T) after their scores (B,), -inf if none is allowed."""
        scores = [self.start.detach(), self.transitions.detach(), self.end.detach()]
        if constrained:
            pairs = zip(scores, self.allowed, strict=True)
            scores = [x.masked_fill(~may.to(x.device), -torch.inf) for x, may in pairs]
        start, transitions, end = scores
        into = transitions.T.contiguous()  # (to, from)
        same = torch.arange(len(end), device=emissions.device)  # (K,)
        best = start + emissions[:, 0]  # (B, K)
        origins = []  # T - 1 times (B, K), the tag before on the best path to each tag
        for emission, real in _steps(emissions, mask):
            longer, origin = (best[:, None, :] + into).max(dim=2)  # (B, K)
            best = (longer + emission).where(real, best)
            origins.append(origin.where(real, same))  # In the padding, a tag stays as it is.
        score, tag = (best + end).max(dim=1)  # (B,)
        path = [tag]
        for origin in reversed(origins):
            path.append(origin.gather(1, path[-1][:, None]).squeeze(1))
        return score, torch.stack(path[::-1], dim=1)


def _steps(emissions: Tensor, mask: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield from the second token on the emissions (B, K) and whether it is real (B, 1)."""
    return zip(emissions.unbind(1)[1:], mask[:, :, None].unbind(1)[1:], strict=True)


def allowed(tags: Sequence[str]) -> tuple[Tensor, Tensor, Tensor]:
    """Return which tags may begin a sentence, follow each other, and end it.

    IOB2: I-X follows B-X or I-X. IOBES: besides, B-X and I-X are followed by I-X or E-X.
    Other tags, such as parts of speech, are allowed anywhere; so is the I-X of files without B-.
    The masks are (K,), (K, K) from row to column, and (K,).
    """
    prefixes = [tag.partition("-")[0] for tag in tags]
    types = [tag.partition("-")[2] for tag in tags]
    if "B" not in prefixes or not set(prefixes) <= set("BIOES"):
        anywhere = torch.ones(len(tags), len(tags), dtype=torch.bool)
        return anywhere[0], anywhere, anywhere[0]
    has_ends = "E" in prefixes or "S" in prefixes
    inside = torch.tensor([prefix in "IE" for prefix in prefixes])  # needs a tag before it
    opened = torch.tensor([prefix in "BI" for prefix in prefixes])  # may have a tag after it
    finished = ~opened | (not has_ends)  # may end its span
    same = torch.tensor([[one == other for other in types] for one in types])  # (K, K)
    continues = opened[:, None] & same  # (K, K)
    return ~inside, torch.where(inside, continues, finished[:, None]), finished

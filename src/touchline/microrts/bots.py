"""The engine's bots as opponents: looked up by name, made, seeded, and shared among areas."""

from collections.abc import Iterator
from typing import Any

from touchline.errors import MissingError, UsageError
from touchline.microrts.java import java_class
from touchline.microrts.rules import BOTS, SELF, Bot, choose, one_turn


def bot_named(name: str) -> Bot:
    """A bot by its short name, or by a Java class name such as `ai.abstraction.HeavyDefense`.

    Raises a UsageError for an unknown short name.
    """
    if "." in name:
        return Bot(name, is_supervised=True)
    return BOTS[choose("bot", name, BOTS)]


def make_bot(name: str, bot: Bot, unit_types: Any) -> Any:
    """A new player of the engine.

    Raises a MissingError without the jar that the bot needs, a UsageError when its class cannot be
    found or constructed.
    """
    import jpype

    try:
        return java_class(bot.java)(unit_types)
    # JPype says with a TypeError that there is no such class or constructor.
    except (TypeError, jpype.JException) as error:
        if bot.extra_jar:
            raise MissingError(
                f"microrts: the bot {name!r} is in a separate jar, which was not found; run "
                "`touchline microrts fetch --bots` (these jars carry no license text)"
            ) from error
        raise UsageError(
            f"microrts: the bot {name!r} ({bot.java}) could not be made: {error}"
        ) from error


def seed_bot(bot: Any, seed: int) -> None:
    """Seed every java.util.Random that a bot keeps in a field.

    Call it after each reset of a game, because a reset clones the bot.
    """
    random = java_class("java.util.Random")
    modifier = java_class("java.lang.reflect.Modifier")
    for field in _fields_of(bot):
        # Static fields are shared by all games: see `seed_engine`.
        is_static = modifier.isStatic(field.getModifiers())
        if field.getType() == random.class_ and not is_static:
            field.setAccessible(True)
            field.set(bot, random(seed))


def _fields_of(owner: Any) -> Iterator[Any]:
    """Java's fields of an object's class and of all its parents."""
    kind = owner.getClass()
    while kind is not None:
        # `getDeclaredFields` leaves out those of parent classes.
        yield from kind.getDeclaredFields()
        kind = kind.getSuperclass()


def limit_search(bot: Any, milliseconds: int) -> None:
    """Let a bot, and every bot that it keeps in a field, search for so long before each move.

    Call it after each reset of a game, because a reset clones the bot, which forgets it.
    """
    player = java_class("ai.core.AI")
    with_budget = java_class("ai.core.AIWithComputationBudget")
    modifier = java_class("java.lang.reflect.Modifier")
    number = java_class("java.lang.System").identityHashCode
    waiting, seen = [bot], {number(bot)}
    while waiting:
        owner = waiting.pop()
        if isinstance(owner, with_budget):
            owner.setTimeBudget(milliseconds)
        for field in _fields_of(owner):
            if field.getType().isPrimitive() or modifier.isStatic(field.getModifiers()):
                continue
            field.setAccessible(True)
            value = field.get(owner)
            if isinstance(value, player) and number(value) not in seen:
                seen.add(number(value))
                waiting.append(value)


def seed_engine(seed: int) -> None:
    """Seed the two random generators that all games of the process share."""
    for owner, name in (("rts.UnitAction", "r"), ("util.Sampler", "generator")):
        field = java_class(owner).class_.getDeclaredField(name)
        field.setAccessible(True)
        field.set(None, java_class("java.util.Random")(seed))


def opponents_of_areas(opponents: str, num_areas: int) -> list[str]:
    """The opponent of each area, from a list such as `coac:18,workerrush:2` that repeats.

    Raises a UsageError for unknown bots.
    """
    # Java tells upper from lower case, our short names do not.
    turn = [
        name if "." in name else name.lower()
        for name in one_turn("opponent", opponents, "BOT")
    ]
    for name in turn:
        if name != SELF:
            bot_named(name)  # raises for an unknown one
    return [turn[area % len(turn)] for area in range(num_areas)]

"""Writes libraries.csv: invented messages to the branches of a library network, always the same.

    python make.py

Sentences are templates with slots. One seeded generator determines branches, sentences and the
split into train and test.
"""

from __future__ import annotations

import csv
import random
from pathlib import Path

TREES = ["Oak", "Rowan", "Cedar", "Ash", "Birch", "Hazel", "Larch", "Elm", "Maple", "Willow"]
TREES += ["Alder", "Beech", "Lime", "Pine", "Yew"]
PLACES = ["Street", "Green", "Square", "Lane", "Hill", "Court", "Road", "Park", "Bridge", "Quay"]
PLACES += ["Mill", "Gate", "Field", "Mount", "Ford", "Row", "Yard", "Cross", "Wharf", "Common"]
TASKS = {
    "spring": ("renewal", "reservation"),
    "summer": ("booking", "complaint"),
    "autumn": ("signup", "suggestion"),
}
TRAIN, TEST = 1, 60
"""Train messages of each branch, and test messages of all branches together, per period."""

SLOTS = {
    "book": [
        "the atlas of rivers",
        "the Portuguese dictionary",
        "the guide to mosses",
        "the repair manual",
        "the island mystery",
        "the audio book",
        "the garden planner",
        "the sewing patterns",
        "the village chronicle",
        "the birdsong discs",
    ],
    "day": ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"],
    "span": ["a week", "ten days", "a fortnight", "a month", "three weeks"],
    "who": ["my son", "my mother", "my grandmother", "our class", "my sister", "me"],
    "room": ["the small study room", "the hall", "the media room", "the piano room", "room two"],
    "spot": ["the reading room", "the basement", "the youth corner", "the entrance", "floor two"],
    "event": [
        "the calligraphy afternoon",
        "the quiz night",
        "the puppet show",
        "the writing workshop",
        "the bookbinding course",
        "the talk on family trees",
        "the film night",
        "the poetry evening",
    ],
    "topic": ["bees", "mending clothes", "our river", "false news", "glaciers", "chess", "maps"],
}

MESSAGES = {
    "renewal": [
        "My card says no more renewals, but I have only twenty pages of {book} left.",
        "I should like to keep {book} for {span} longer if no one is waiting.",
        "Can you add {span} to the loan of {book}?",
        "I am ill in bed, can the due date of {book} be moved?",
        "I forgot to renew {book} by midnight; can it still be done by phone?",
        "The toddler has hidden {book}; please extend it while we search.",
        "I have had {book} for three weeks and need {span} more.",
        "The renew button on the website does nothing for {book}.",
        "{book} is due back on {day}, and I would like {span} longer.",
        "I can't come by before {day}, so please extend my loan.",
        "Please renew {book} until {day}.",
        "Is it possible to renew {book} a third time?",
        "The reminder for {book} came, and I am not done yet. More time, please!",
        "Could the return date of {book} be put off by {span}?",
    ],
    "reservation": [
        "How long is the queue for {book}?",
        "Set {book} aside for {who}, please.",
        "I want to be told when {book} has been returned by the other reader.",
        "Has {book}, which I ordered from the central store, arrived?",
        "Can {book} be sent here from another branch for me to collect?",
        "Am I still third in line for {book}?",
        "Somebody else took {book}, which was on the hold shelf for {who}.",
        "Could you hold {book} at the front desk for {who}?",
        "The catalogue says {book} is on loan to somebody; may I be next?",
        "I reserved the wrong edition of {book}, please change it.",
        "Please cancel my hold on {book}.",
        "Could I order {book} through another library?",
        "Where do I collect {book}, which I reserved online?",
        "Please put a hold on {book} for {who}.",
    ],
    "booking": [
        "Is {room} free on {day} afternoon?",
        "We need a room for six people and a screen on {day}.",
        "How far ahead can {room} be booked?",
        "Could the chess club have {room} after closing time?",
        "The calendar shows {room} as free, may our group take it?",
        "What does {room} cost on a {day}?",
        "Please add half an hour to our booking of {room}.",
        "Our booking of {room} overlaps with another group's.",
        "Who opens {room} if our meeting begins before you do?",
        "Please cancel {room} for {day}, two of us are ill.",
        "How many chairs fit into {room}?",
        "I need a quiet room for a telephone appointment on {day}.",
        "May we eat in {room}, which we have booked for {day}?",
        "We would like {room} with the projector for our meeting.",
    ],
    "complaint": [
        "The copier in {spot} ate my coins and gave me nothing.",
        "It smells of paint in {spot}, and my head aches.",
        "{spot} is so cold that I wear gloves.",
        "The lamps in {spot} flicker all day.",
        "Somebody keeps eating fried fish in {spot}.",
        "The lift to {spot} was out of order again on {day}.",
        "Nobody empties the bins in {spot}.",
        "The chairs in {spot} are torn and wobbly.",
        "Water comes through the ceiling of {spot}.",
        "A group laughed for two hours in {spot} on {day}.",
        "The floor of {spot} is slippery when it is wet.",
        "All sockets in {spot} are dead.",
        "The wireless network in {spot} drops out every ten minutes.",
        "The heating in {spot} knocks like a hammer.",
    ],
    "signup": [
        "Are there places left in {event}?",
        "Put {who} on the waiting list for {event}.",
        "I cannot come to {event} on {day}, please give my seat away.",
        "Do I need a ticket for {event}?",
        "Count us in for {event}, team of five.",
        "Please register {who} for {event}.",
        "Is {event} on {day} already full?",
        "Three of us want to take part in {event}.",
        "Does {event} cost anything, and can {who} still enrol?",
        "I missed the first evening, may I join {event} on {day}?",
        "Please take {who} off the list for {event}.",
        "When does registration open for {event}?",
        "Is {event} open to four-year-olds?",
        "Sign {who} up for {event}, please.",
    ],
    "suggestion": [
        "How about a shelf of books about {topic}?",
        "You should invite the woman who wrote about {topic}.",
        "Why not open an hour earlier on {day}s?",
        "It would be lovely to have something about {topic}.",
        "Please buy more books about {topic}.",
        "I wish you offered more about {topic}.",
        "Let readers vote on which magazines about {topic} you keep.",
        "Have you thought of lending out tools for {topic}?",
        "What about a bench outside for reading about {topic}?",
        "Perhaps somebody could speak about {topic} some day.",
        "Could you start a club for friends of {topic}?",
        "An exhibition on {topic} would be great.",
        "My idea: a swap day for everything about {topic}.",
        "You might ask beekeepers and readers to show what they know of {topic}.",
    ],
}
OPENINGS = ["", "", "", "Hello. ", "Good morning. ", "A question: ", "Dear team, ", "Hi, "]
ENDINGS = ["", "", "", " Thank you.", " Kind regards.", " Please answer by mail."]


def message(label: str, rng: random.Random) -> str:
    """One message with this label."""
    chosen = {name: rng.choice(words) for name, words in SLOTS.items()}
    text = rng.choice(MESSAGES[label]).format(**chosen)
    opening = rng.choice(OPENINGS)
    if not opening.endswith((", ", ": ")):
        text = text[0].upper() + text[1:]
    elif not text.startswith("I "):
        text = text[0].lower() + text[1:]
    return opening + text + rng.choice(ENDINGS)


def rows(rng: random.Random) -> list[list[str]]:
    """Branch, period, text, label, split; no text occurs twice."""
    branches = [f"{tree} {place}" for tree in TREES for place in PLACES]
    found, seen = [], set()
    for task, labels in TASKS.items():
        wanted = [(branch, "train") for branch in branches for _ in range(TRAIN)]
        wanted += [(branch, "test") for branch in rng.choices(branches, k=TEST)]
        for branch, split in wanted:
            label = rng.choice(labels)
            text = message(label, rng)
            while text in seen:
                text = message(label, rng)
            seen.add(text)
            found.append([branch, task, text, label, split])
    rng.shuffle(found)
    return sorted(found, key=lambda row: list(TASKS).index(row[1]))


def main() -> None:
    """Write the file beside this one."""
    path = Path(__file__).with_name("libraries.csv")
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["branch", "period", "message", "category", "split"])
        writer.writerows(rows(random.Random(7)))


if __name__ == "__main__":
    main()

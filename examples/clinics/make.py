"""Writes clinics.csv: invented messages of invented patients to four clinics, always the same.

    python make.py

Some sentences are templates with slots, others are fixed. One seeded generator determines patients,
sentences and the split into train and test.
"""

from __future__ import annotations

import csv
import random
from pathlib import Path

CLINICS = {"Harbour": 150, "Hillside": 120, "Mill Lane": 90, "Station": 60}
"""Number of patients of each clinic."""
TASKS = {"spring": ("reception", "nurses"), "autumn": ("doctors", "accounts")}
TESTED = 0.25

SLOTS = {
    "day": ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "tomorrow"],
    "time": ["nine", "half past ten", "noon", "two o'clock", "a quarter to four", "five"],
    "who": ["my son", "my mother", "my husband", "my daughter", "my neighbour", "I"],
    "part": ["knee", "left foot", "shoulder", "elbow", "back of the head", "right hand"],
    "drug": ["the blood pressure tablets", "the new inhaler", "the drops", "the iron pills"],
    "sign": ["dizzy", "sick", "very tired", "short of breath", "shaky", "swollen"],
    "trip": ["Kenya", "Peru", "India", "Thailand", "Ghana"],
    "sum": ["12", "38", "45", "60", "110"],
    "month": ["January", "March", "May", "June", "September"],
}

MESSAGES = {
    "reception": [
        "Could my visit on {day} be moved to {time}?",
        "I have to call off {day}, what else is free?",
        "Is anything open on {day} after {time}?",
        "{day} at {time} suits me, please put me down.",
        "Where can one park near you on {day}?",
        "Do you close at {time} on {day}?",
        "I stood before a locked door at {time}, when do you open?",
        "Which floor are you on, and is there a lift?",
        "I missed my slot at {time} because of the bus, sorry.",
        "Can I come without booking on {day}?",
        "Please change my telephone number in your book.",
        "We have moved house, here is our new address.",
        "Is the waiting room still closed to visitors?",
        "Your line has been engaged since {time}.",
        "May {who} come along on {day}?",
        "I would like to register with you as a new patient.",
        "Somebody left a blue umbrella with you on {day}.",
        "The confirmation for {day} never reached me.",
    ],
    "nurses": [
        "The bandage on the {part} has come loose, can somebody redo it?",
        "When may the stitches in the {part} come out?",
        "{who} needs a tetanus jab before {month}.",
        "Which jabs are needed for {trip}?",
        "I fly to {trip} in {month} and want my shots.",
        "May I shower with the dressing on my {part}?",
        "The plaster on the {part} itches and is wet.",
        "Do I have to be fasting for the blood sample on {day}?",
        "Can the blood be drawn before {time}?",
        "Who shows {who} how to inject at home?",
        "The wound at the {part} weeps a little through the gauze.",
        "Please measure my blood pressure again on {day}.",
        "When is the flu clinic held this year?",
        "My ears want rinsing again, as every spring.",
        "How do I clean the cut on the {part}?",
        "Is the second shot due in {month}?",
        "The catheter bag has to be changed on {day}.",
        "I need more gauze and tape for the {part}.",
    ],
    "doctors": [
        "Since I take {drug} I feel {sign}.",
        "What did the scan of the {part} show?",
        "The {part} hurts at night and wakes me up.",
        "{who} has been {sign} since {day}, should we worry?",
        "May I halve {drug}?",
        "I am {sign} every morning, and it gets worse.",
        "Are the values from {month} all right?",
        "Does {drug} go together with aspirin?",
        "There is a new lump at the {part}.",
        "Should I stop {drug} before the operation?",
        "The pain has moved from the {part} to the hip.",
        "I fainted on {day} and do not know why.",
        "My fever is back, four days after the last pill.",
        "Would a specialist look at the {part}?",
        "I have not slept properly since {month}.",
        "Is it normal to be {sign} after {drug}?",
        "The rash has spread to the {part}.",
        "Could it be the heart? I am {sign} on the stairs.",
    ],
    "accounts": [
        "Why was I charged {sum} for {day}?",
        "The bill of {month} came twice.",
        "My insurer wants a copy of the {month} invoice.",
        "I paid {sum} in cash and have no receipt.",
        "Can the {sum} be paid in two parts?",
        "Who signs the sick note for my employer?",
        "I need a certificate for school for {day}.",
        "The reminder over {sum} is a mistake, it was paid in {month}.",
        "My insurance number has changed since {month}.",
        "Does the insurer cover the {sum} for the letter?",
        "Please send the form for the sports club signed.",
        "What does a copy of my file cost?",
        "The travel insurer asks for a statement about {month}.",
        "You have debited {sum} from the wrong account.",
        "Is the fee of {sum} due at once?",
        "My firm wants the sick note by {day}.",
        "The refund of {sum} has not arrived.",
        "I am exempt from fees since {month}, card enclosed.",
    ],
}
OPENINGS = ["", "", "", "Hello. ", "Good morning. ", "A question: ", "Dear team, ", "Hi, "]
ENDINGS = ["", "", "", " Thank you.", " Please ring me.", " Kind regards.", " It is urgent."]


def message(label: str, rng: random.Random) -> str:
    """One message with this label."""
    chosen = {name: rng.choice(words) for name, words in SLOTS.items()}
    text = rng.choice(MESSAGES[label]).format(**chosen)
    return rng.choice(OPENINGS) + text[0].upper() + text[1:] + rng.choice(ENDINGS)


def rows(rng: random.Random) -> list[list[str]]:
    """Clinic, patient, task, text, label, split; a patient has two to four messages."""
    found = []
    for clinic, patients in CLINICS.items():
        for number in range(patients):
            split = "test" if rng.random() < TESTED else "train"
            task = rng.choice(list(TASKS))
            for _ in range(rng.randint(2, 4)):
                label = rng.choice(TASKS[task])
                text = message(label, rng)
                found.append([clinic, f"{clinic.split()[0]}-{number:03}", task, text, label, split])
    rng.shuffle(found)
    return found


def main() -> None:
    """Write the file beside this one."""
    path = Path(__file__).with_name("clinics.csv")
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["clinic", "patient", "season", "message", "team", "split"])
        writer.writerows(rows(random.Random(7)))


if __name__ == "__main__":
    main()

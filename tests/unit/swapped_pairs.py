"""Pairs of claims that share their words but for one or two in the same place, with what they are to each other.

OTHER: another name, thing, letter or month, so that not both are true of the one thing asked for. SAME: a synonym,
another order, a further adjective. BOTH: another thing too, and both may be true; these count as no agreement, and
whoever takes them for a contradiction is wrong.
The held out ones were written together with the others, before any rule was, and no rule was changed by them.
"""

from __future__ import annotations

from tests.unit.claim_pairs import AGREE, CONTRADICT, DIFFER, ClaimPair

_OTHER = [
    ("The capital of Australia is Sydney.", "The capital of Australia is Canberra."),
    ("Use PostgreSQL for this workload.", "Use MongoDB for this workload."),
    ("The patient most likely has pneumonia.", "The patient most likely has tuberculosis."),
    ("The answer is B.", "The answer is C."),
    ("The war ended in May.", "The war ended in August."),
    ("Emma was written by Jane Austen.", "Emma was written by Charles Dickens."),
    ("The meeting takes place on Monday.", "The meeting takes place on Thursday."),
    ("The bottleneck is the disk.", "The bottleneck is the network."),
    ("Sydney is the capital of Australia.", "Canberra is the capital of Australia."),
    (
        "The largest planet of the solar system is Jupiter.",
        "The largest planet of the solar system is Saturn.",
    ),
    ("The light turns green when the charger is ready.", "The light turns red when the charger is ready."),
    ("Insulin is made in the pancreas.", "Insulin is made in the liver."),
    ("The contract falls under the law of France.", "The contract falls under the law of Germany."),
    ("Penicillin was discovered by Alexander Fleming.", "Penicillin was discovered by Louis Pasteur."),
    ("The chemical symbol of sodium is Na.", "The chemical symbol of sodium is So."),
    ("The bug is in the parser.", "The bug is in the scheduler."),
    ("The safest option is surgery.", "The safest option is radiation."),
    ("The painting hangs in the Louvre.", "The painting hangs in the Prado."),
    ("Write the service in Rust.", "Write the service in Java."),
    ("The correct treatment is ibuprofen.", "The correct treatment is paracetamol."),
    ("The river flows into the Black Sea.", "The river flows into the North Sea."),
    ("The tree in the picture is an oak.", "The tree in the picture is a birch."),
    ("Option A is the cheapest.", "Option D is the cheapest."),
    ("The fiscal year starts in April.", "The fiscal year starts in October."),
    ("The outage was caused by a power failure.", "The outage was caused by a software update."),
    ("The author's nationality is Irish.", "The author's nationality is Scottish."),
    ("The main ingredient of hummus is chickpeas.", "The main ingredient of hummus is lentils."),
    ("The default port of the server belongs to Redis.", "The default port of the server belongs to Kafka."),
]
_SAME = [
    ("The capital of Australia is Canberra.", "Canberra is the capital of Australia."),
    ("Use a large cache for this workload.", "Use a big cache for this workload."),
    ("The patient most likely has pneumonia.", "The patient probably has pneumonia."),
    ("The answer is B.", "The correct answer is B."),
    ("The war ended in May.", "The war was over in May."),
    ("Emma was written by Jane Austen.", "Jane Austen wrote the novel Emma."),
    ("The meeting takes place on Monday.", "The meeting is held on Monday."),
    ("The bottleneck is the disk.", "The main bottleneck is clearly the slow disk."),
    ("The physician should check the dose.", "The doctor should check the dose."),
    ("You should buy a car with low mileage.", "You should purchase a car with low mileage."),
    ("The film starts at noon.", "The movie starts at noon."),
    ("Restart the server to fix the error.", "Restart the server to resolve the error."),
    ("The colour of the door is grey.", "The color of the door is gray."),
    ("The algorithm is quick on small inputs.", "The algorithm is fast on small inputs."),
    ("The company was founded in the United States.", "The company was founded in the US."),
    ("Delete the old log files.", "Remove the old log files."),
    ("The child needs help with reading.", "The kid needs help with reading."),
    ("Use Postgres for this workload.", "Use PostgreSQL for this workload."),
    ("Shut the valve before you leave.", "Close the valve before you leave."),
    ("The test failed because of a timeout.", "The test failed due to a timeout."),
    ("The lawyer advised a settlement.", "The attorney advised a settlement."),
    ("The train to Berlin leaves in April.", "In April the train to Berlin leaves."),
    ("A thin layer of ice covers the lake.", "The lake is covered by a thin layer of ice."),
    ("Passwords must be hashed.", "All stored passwords must always be securely hashed."),
    ("The bug causes a crash.", "The bug leads to a crash."),
    ("Vaccination protects against measles.", "Immunization protects against measles."),
    ("The trip takes about two hours.", "The journey takes about two hours."),
    ("The main advantage is simplicity.", "The main benefit is simplicity."),
]
_BOTH = [
    ("Spinach contains iron.", "Spinach contains magnesium."),
    ("The city has many museums.", "The city has many parks."),
    ("Python is used for web servers.", "Python is used for data analysis."),
    ("Add tests for the parser.", "Add tests for the scheduler."),
    ("One risk is inflation.", "One risk is unemployment."),
    ("Trains go to Berlin.", "Trains go to Hamburg."),
    ("The kit includes a hammer.", "The kit includes a saw."),
    ("For example, France has nuclear plants.", "For example, Sweden has nuclear plants."),
    ("Check the logs of the proxy first.", "Check the logs of the database too."),
    ("Cats like to sleep in boxes.", "Cats like to sleep in baskets."),
]
_OTHER_HELD_OUT = [
    ("The currency of Switzerland is the franc.", "The currency of Switzerland is the euro."),
    ("I recommend Kubernetes for this deployment.", "I recommend Nomad for this deployment."),
    ("The rash is most likely caused by an allergy.", "The rash is most likely caused by an infection."),
    ("The right choice is option A.", "The right choice is option B."),
    ("The treaty was signed in March.", "The treaty was signed in November."),
    ("The telephone was invented by Bell.", "The telephone was invented by Edison."),
    ("The shop is closed on Tuesdays.", "The shop is closed on Fridays."),
    (
        "The slowest part of the pipeline is the tokenizer.",
        "The slowest part of the pipeline is the decoder.",
    ),
    ("Lisbon hosted the conference that year.", "Madrid hosted the conference that year."),
    ("The closest star to the Sun is Proxima Centauri.", "The closest star to the Sun is Sirius."),
    ("The wire that carries the current is brown.", "The wire that carries the current is blue."),
    ("Bile is produced by the liver.", "Bile is produced by the stomach."),
    ("The dispute is decided by a court in London.", "The dispute is decided by a court in Singapore."),
    (
        "The theory of relativity was published by Einstein.",
        "The theory of relativity was published by Poincaré.",
    ),
    ("The best first-line drug here is metformin.", "The best first-line drug here is insulin."),
    ("The memory leak is in the cache.", "The memory leak is in the logger."),
    ("The cheapest way to get there is the bus.", "The cheapest way to get there is the train."),
    ("The longest river in Europe is the Volga.", "The longest river in Europe is the Danube."),
    ("The front end should be built with React.", "The front end should be built with Angular."),
    ("The festival is celebrated in spring.", "The festival is celebrated in autumn."),
    ("The statue is made of bronze.", "The statue is made of marble."),
    ("The company's headquarters are in Munich.", "The company's headquarters are in Vienna."),
    ("Vitamin D is what the patient lacks.", "Vitamin K is what the patient lacks."),
    ("The study was carried out with mice.", "The study was carried out with rats."),
    ("The request is rejected by the firewall.", "The request is rejected by the load balancer."),
    ("The symphony was composed by Mahler in Vienna.", "The symphony was composed by Bruckner in Vienna."),
    ("Store the sessions in Redis.", "Store the sessions in cookies."),
    ("The tax is paid by the seller.", "The tax is paid by the buyer."),
]
_SAME_HELD_OUT = [
    ("The currency of Switzerland is the franc.", "The franc is the currency of Switzerland."),
    ("I recommend Kubernetes for this deployment.", "I suggest Kubernetes for this deployment."),
    ("The rash is most likely caused by an allergy.", "The rash is probably caused by an allergy."),
    ("The right choice is option A.", "The correct choice is option A."),
    ("The treaty was signed in March.", "In March the treaty was signed."),
    ("The telephone was invented by Bell.", "Bell invented the telephone."),
    ("The shop is closed on Tuesdays.", "The store is closed on Tuesdays."),
    (
        "The slowest part of the pipeline is the tokenizer.",
        "The slowest stage of the pipeline is the tokenizer.",
    ),
    ("Begin with a small prototype.", "Start with a small prototype."),
    ("The car is expensive to repair.", "The automobile is expensive to repair."),
    ("The results were surprising.", "The final results were quite surprising to everyone."),
    ("Use clear names for variables.", "Use descriptive names for variables."),
    ("The committee rejected the plan.", "The committee turned down the plan."),
    ("The illness spreads through contaminated water.", "The disease spreads through contaminated water."),
    ("The organisation moved to the UK.", "The organization moved to the United Kingdom."),
    ("The job needs strong communication skills.", "The position needs strong communication skills."),
    ("Keep the documents in a safe place.", "Keep the documents in a secure place."),
    ("The error occurs when the queue is full.", "The error happens when the queue is full."),
    ("The error occurs when the queue is full.", "When the queue is full, the error occurs."),
    ("Most people prefer tea.", "Most individuals prefer tea."),
    ("The house needs a new roof.", "The old house urgently needs a completely new roof."),
    ("The soldier was wounded in battle.", "The soldier was injured in battle."),
    ("The cache reduces latency.", "The cache lowers latency."),
    ("Photosynthesis takes place in chloroplasts.", "Photosynthesis occurs in chloroplasts."),
    ("The exam was difficult for the students.", "The exam was hard for the students."),
    ("Use JavaScript for the front end.", "Use JS for the front end."),
    ("Drink enough water when you exercise.", "Drink sufficient water when you exercise."),
    ("The garbage is collected every week.", "The trash is collected every week."),
]
_BOTH_HELD_OUT = [
    ("Nuts are rich in fibre.", "Nuts are rich in protein."),
    ("The region produces wine.", "The region produces cheese."),
    ("Docker can be installed on Windows.", "Docker can be installed on Linux."),
    ("Write documentation for the users.", "Write documentation for the developers."),
    ("Another drawback is the cost.", "Another drawback is the noise."),
    ("The company sells phones.", "The company sells laptops."),
    ("Stress can cause headaches.", "Stress can cause insomnia."),
    ("Many tourists visit Rome.", "Many tourists visit Venice."),
    ("Make sure that the backups are tested.", "Make sure that the alarms are tested."),
    ("Some patients suffer from nausea.", "Some patients suffer from fatigue."),
]


def _labelled(
    other: list[tuple[str, str]], same: list[tuple[str, str]], both: list[tuple[str, str]]
) -> tuple[ClaimPair, ...]:
    return tuple(
        ClaimPair(one, two, label)
        for label, pairs in ((CONTRADICT, other), (AGREE, same), (DIFFER, both))
        for one, two in pairs
    )


SWAPPED = _labelled(_OTHER, _SAME, _BOTH)
SWAPPED_HELD_OUT = _labelled(_OTHER_HELD_OUT, _SAME_HELD_OUT, _BOTH_HELD_OUT)

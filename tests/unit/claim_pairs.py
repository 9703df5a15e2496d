"""Pairs of claims with what they are to each other, by hand: what matching is measured by.

AGREE: both say the same. DIFFER: about the same subject, and both may be true. CONTRADICT: not both can be true, by
a "not", an opposite word or a figure; among those held out, also by their sense alone.
"""

from __future__ import annotations

from typing import NamedTuple

AGREE, DIFFER, CONTRADICT = "agree", "differ", "contradict"


class ClaimPair(NamedTuple):
    one: str
    other: str
    label: str


_AGREE = [
    (
        "Water boils at 100 °C at sea level.",
        "At sea level, the boiling point of water is 100 degrees Celsius.",
    ),
    ("Paris is the capital of France.", "France's capital city is Paris."),
    ("Python lists are mutable.", "You can change a Python list after it has been created."),
    ("The Great Fire of London happened in 1666.", "London burned in the Great Fire of 1666."),
    ("SQLite allows only one writer at a time.", "At any moment just a single writer may use SQLite."),
    ("Regular exercise lowers blood pressure.", "Blood pressure is reduced by exercising regularly."),
    ("The speed of light is about 300,000 km/s.", "Light travels at roughly 299,792 km/s."),
    ("You should drink more water on hot days.", "In hot weather, drink more water."),
    (
        "Indexes make reads faster but writes slower.",
        "An index speeds up queries at the cost of slower writes.",
    ),
    ("The meeting was moved to Tuesday.", "They rescheduled the meeting for Tuesday."),
    ("Asyncio runs all coroutines in a single thread.", "With asyncio, coroutines share one thread."),
    ("The mitochondria produce most of a cell's energy.", "Most cellular energy is made by mitochondria."),
    ("Smoking causes lung cancer.", "Lung cancer can be caused by smoking tobacco."),
    ("Add the salt before the pasta goes in.", "Salt the water before you add the pasta."),
    ("The train takes two hours.", "The journey by train lasts 120 minutes."),
    ("Shakespeare wrote Hamlet.", "Hamlet was written by William Shakespeare."),
    ("TCP guarantees that data arrives in order.", "In-order delivery of data is guaranteed by TCP."),
    ("Rust prevents data races at compile time.", "Data races are ruled out by the Rust compiler."),
    ("The population grew by ten percent.", "The number of inhabitants rose by 10 %."),
    ("Use a virtual environment for each project.", "Every project should have its own virtual environment."),
    ("The library is closed on Sundays.", "On Sunday the library is not open."),
    ("Do not store passwords in plain text.", "Passwords should never be saved as plain text."),
    ("Vitamin C does not cure the common cold.", "The common cold cannot be cured with vitamin C."),
    ("Lithium batteries lose capacity as they age.", "Older lithium batteries hold less charge."),
]
_DIFFER = [
    ("Paris is the capital of France.", "Paris has more than two million inhabitants."),
    ("Python lists are mutable.", "Python was created by Guido van Rossum."),
    ("SQLite allows only one writer at a time.", "SQLite keeps a database in a single file."),
    ("Regular exercise lowers blood pressure.", "A diet low in salt is good for the heart."),
    ("The Great Fire of London happened in 1666.", "Christopher Wren rebuilt St Paul's Cathedral."),
    ("Water boils at 100 °C at sea level.", "Water expands when it freezes."),
    ("Indexes make reads faster.", "A primary key identifies each row."),
    ("Asyncio runs coroutines in a single thread.", "Threads share the memory of their process."),
    ("Shakespeare wrote Hamlet.", "Hamlet is a prince of Denmark."),
    ("The train takes two hours.", "A ticket for the train can be bought online."),
    ("Smoking causes lung cancer.", "Cigarettes contain nicotine."),
    ("TCP guarantees that data arrives in order.", "TCP opens a connection with a handshake."),
    ("Rust prevents data races at compile time.", "Rust programs are built with Cargo."),
    ("The mitochondria produce most of a cell's energy.", "The nucleus holds the cell's DNA."),
    ("The meeting was moved to Tuesday.", "The meeting is about next year's budget."),
    ("Use a virtual environment for each project.", "Pin the versions of your dependencies."),
    ("Lithium batteries lose capacity as they age.", "Lithium is mined in Chile and Australia."),
    ("Add the salt before the pasta goes in.", "Serve the pasta with grated cheese."),
    ("The library is closed on Sundays.", "The library has 40,000 books."),
    ("The population grew by ten percent.", "Most people live in the cities."),
    ("Vitamin C does not cure the common cold.", "Oranges are rich in vitamin C."),
    ("Back up the database every night.", "Test that the backup can be restored."),
    ("The bridge was opened in 1932.", "The bridge is painted grey."),
    ("Bees pollinate many crops.", "Bees make honey from nectar."),
]
_CONTRADICT = [
    ("The drug is safe for children.", "The drug is not safe for children."),
    ("The maximum dose is 5 mg per day.", "The maximum dose is 50 mg per day."),
    ("The bridge was opened in 1932.", "The bridge opened in 1923."),
    ("Python lists are mutable.", "Python lists are immutable."),
    ("Raising interest rates increases inflation.", "Raising interest rates decreases inflation."),
    ("The train takes two hours.", "The train takes five hours."),
    ("Vaccines do not cause autism.", "Vaccines cause autism."),
    ("You should restart the server before the upgrade.", "You should restart the server after the upgrade."),
    ("The function is thread-safe.", "The function isn't thread-safe."),
    ("The shop is always open on Sundays.", "The shop is never open on Sundays."),
    ("The file is 10 MB in size.", "The file has a size of 10 GB."),
    ("The battery lasts 8 hours.", "The battery lasts 80 minutes."),
    ("Employees must sign the form.", "Employees need not sign the form."),
    ("The project came in below budget.", "The project came in above budget."),
    ("The new engine is faster than the old one.", "The new engine is slower than the old one."),
    ("Half of the voters, 50 %, agreed.", "Only 20 % of the voters agreed."),
    ("The capital has 3 million inhabitants.", "The capital has 8 million inhabitants."),
    ("Glass is a liquid.", "Glass is not a liquid."),
    ("Caching is enabled by default.", "Caching is disabled by default."),
    ("The war ended in 1945.", "The war ended in 1944."),
    ("Der Server ist sicher.", "Der Server ist nicht sicher."),
    ("The contract can be cancelled.", "The contract cannot be cancelled."),
]
PAIRS = tuple(
    ClaimPair(one, other, label)
    for label, pairs in ((AGREE, _AGREE), (DIFFER, _DIFFER), (CONTRADICT, _CONTRADICT))
    for one, other in pairs
)

# Longer ones, as models write them. Thresholds and lists of words were settled before these were written.
HELD_OUT = (
    ClaimPair(
        "For a small team, a monolith is usually the better choice because it is simpler to deploy and debug.",
        "Small teams are generally better off with a monolith, since deployment and debugging are simpler.",
        AGREE,
    ),
    ClaimPair(
        "Connection pooling avoids the cost of opening a new database connection for every request.",
        "By reusing connections, a pool saves you from paying the setup cost of a database connection each time.",
        AGREE,
    ),
    ClaimPair(
        "The main cause of the outage was an expired TLS certificate on the load balancer.",
        "The outage was primarily due to a TLS certificate on the load balancer that had expired.",
        AGREE,
    ),
    ClaimPair(
        "Photosynthesis converts carbon dioxide and water into glucose and oxygen using sunlight.",
        "Plants use sunlight to turn water and CO2 into sugar, releasing oxygen.",
        AGREE,
    ),
    ClaimPair(
        "The treaty was signed in Vienna in 1815 after the defeat of Napoleon.",
        "After Napoleon was defeated, the treaty was signed at Vienna in 1815.",
        AGREE,
    ),
    ClaimPair(
        "You should not deploy on Fridays, because nobody is around to fix problems at the weekend.",
        "Avoid Friday deployments: at the weekend there is no one to deal with problems.",
        AGREE,
    ),
    ClaimPair(
        "Most of the memory is used by the cache, so lowering its size will help the most.",
        "Reducing the cache size would have the biggest effect, as it takes up most of the memory.",
        AGREE,
    ),
    ClaimPair(
        "Compound interest means that you also earn interest on the interest of earlier years.",
        "With compound interest, interest already earned itself earns interest.",
        AGREE,
    ),
    ClaimPair(
        "The patient should take 500 mg twice a day with food.",
        "Take 0.5 g with meals, two times daily.",
        AGREE,
    ),
    ClaimPair(
        "Keep the door closed while the oven is heating up, so that no heat is lost.",
        "To avoid losing heat, do not open the oven door while it heats up.",
        AGREE,
    ),
    ClaimPair(
        "For a small team, a monolith is usually the better choice because it is simpler to deploy.",
        "A message queue decouples the services of a system from each other.",
        DIFFER,
    ),
    ClaimPair(
        "Connection pooling avoids the cost of opening a database connection for every request.",
        "A database index should be added for columns that are often used in queries.",
        DIFFER,
    ),
    ClaimPair(
        "The main cause of the outage was an expired TLS certificate on the load balancer.",
        "The outage affected customers in Europe and was reported on the status page.",
        DIFFER,
    ),
    ClaimPair(
        "Photosynthesis converts carbon dioxide and water into glucose and oxygen using sunlight.",
        "Chlorophyll gives plants their green colour because it reflects green light.",
        DIFFER,
    ),
    ClaimPair(
        "The treaty was signed in Vienna in 1815 after the defeat of Napoleon.",
        "Napoleon spent his last years on the island of Saint Helena.",
        DIFFER,
    ),
    ClaimPair(
        "You should not deploy on Fridays, because nobody is around to fix problems.",
        "Deployments should be automated so that they can be repeated at any time.",
        DIFFER,
    ),
    ClaimPair(
        "Most of the memory is used by the cache, so lowering its size will help the most.",
        "A cache needs a rule for when its entries become stale.",
        DIFFER,
    ),
    ClaimPair(
        "Compound interest means that you also earn interest on interest.",
        "Inflation reduces what your savings can buy over time.",
        DIFFER,
    ),
    ClaimPair(
        "The patient should take 500 mg twice a day with food.",
        "The patient should tell the doctor about all other medicines.",
        DIFFER,
    ),
    ClaimPair(
        "Electric cars have fewer moving parts, so they need less maintenance.",
        "Electric cars can be charged overnight at home.",
        DIFFER,
    ),
    ClaimPair(
        "For small teams a monolith is the better choice.",
        "For small teams a monolith is not the better choice; services are.",
        CONTRADICT,
    ),
    ClaimPair(
        "The treaty was signed in Vienna in 1815 after the defeat of Napoleon.",
        "The treaty was signed in Vienna in 1809, before the defeat of Napoleon.",
        CONTRADICT,
    ),
    ClaimPair(
        "The patient should take 500 mg twice a day with food.",
        "The patient should take 250 mg twice a day with food.",
        CONTRADICT,
    ),
    ClaimPair(
        "Lowering the cache size will increase the load on the database.",
        "Lowering the size of the cache will decrease database load.",
        CONTRADICT,
    ),
    ClaimPair(
        "Opening a database connection for each request is cheap, about 2 ms.",
        "Opening a database connection for each request costs about 200 ms.",
        CONTRADICT,
    ),
    ClaimPair(
        "Electric cars need less maintenance than petrol cars.",
        "Electric cars need more maintenance than petrol cars.",
        CONTRADICT,
    ),
    ClaimPair(
        "The outage was caused by an expired certificate.",
        "The outage was not caused by the certificate, which was valid.",
        CONTRADICT,
    ),
    ClaimPair(
        "Coffee stunts the growth of children.",
        "There is no evidence that coffee stunts the growth of children.",
        CONTRADICT,
    ),
    ClaimPair(
        "It is legal to park here overnight.",
        "Overnight parking is prohibited here.",
        CONTRADICT,
    ),
    ClaimPair(
        "The app supports Windows and macOS only.",
        "The app runs on Linux as well.",
        CONTRADICT,
    ),
)

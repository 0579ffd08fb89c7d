// The exercises of a lesson. The server computes the answers; the page compares.
import { useState } from "preact/hooks";
import type { LessonExercise } from "../../api";
import { isRight } from "./lessons";
import { remember, useProgress } from "./progress";

export function Exercises({ lesson, exercises }: { lesson: string; exercises: readonly LessonExercise[] }) {
  const solved = useProgress()[lesson]?.solved ?? [];
  if (!exercises.length) return null;
  return (
    <section class="exercises" aria-labelledby="exercises-title">
      <h3 id="exercises-title">
        Exercises{" "}
        <span class="muted small">
          {solved.length} of {exercises.length} solved
        </span>
      </h3>
      <ol>
        {exercises.map((exercise, i) => (
          <ExerciseItem
            key={`${lesson} ${i}`}
            exercise={exercise}
            wasSolved={solved.includes(i)}
            onSolved={() => remember(lesson, exercises.length, i)}
          />
        ))}
      </ol>
    </section>
  );
}

interface ItemProps {
  exercise: LessonExercise;
  wasSolved: boolean;
  onSolved: () => void;
}

function ExerciseItem({ exercise, wasSolved, onSolved }: ItemProps) {
  const [given, setGiven] = useState("");
  const [verdict, setVerdict] = useState<"" | "right" | "wrong" | "shown">("");
  const check = (answer: string): void => {
    setGiven(answer);
    if (!answer.trim()) return;
    const right = isRight(exercise, answer);
    setVerdict(right ? "right" : "wrong");
    if (right) onSolved();
  };
  return (
    <li data-exercise={verdict || (wasSolved ? "solved" : "open")}>
      <p>
        {exercise.question}{" "}
        {wasSolved ? (
          <span class="solved" title="solved">
            ✓
          </span>
        ) : null}
      </p>
      {exercise.choices.length ? (
        <div class="choices" role="group" aria-label={exercise.question}>
          {exercise.choices.map((choice) => (
            <button class="chip" key={choice} aria-pressed={given === choice} onClick={() => check(choice)}>
              {choice}
            </button>
          ))}
        </div>
      ) : (
        <form
          class="answer"
          onSubmit={(event) => {
            event.preventDefault();
            check(given);
          }}
        >
          <input
            class="cell"
            inputMode="decimal"
            aria-label={`answer: ${exercise.question}`}
            value={given}
            onInput={(event) => setGiven(event.currentTarget.value)}
          />
          <button class="chip">check</button>
        </form>
      )}
      {verdict === "wrong" ? (
        <p class="verdict wrong" role="status">
          Not yet.{" "}
          <button class="reset" onClick={() => setVerdict("shown")}>
            show the answer
          </button>
        </p>
      ) : null}
      {verdict === "right" || verdict === "shown" ? (
        <p class={`verdict ${verdict}`} role="status">
          <b>{verdict === "right" ? "Right." : `${exercise.shown_answer}.`}</b> {exercise.explanation}
        </p>
      ) : null}
    </li>
  );
}
